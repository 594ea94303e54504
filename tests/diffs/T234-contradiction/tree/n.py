import time


def step(index):
    started = time.time()
    run(index)
    note(index)
    finish()
    check(index)
    return started


def other(index):
    return index


def last():
    pass
