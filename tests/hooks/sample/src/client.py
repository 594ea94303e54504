"""Asks a server, and asks again."""

import time


def ask(server, question):
    return server.send(question)


def ask_again(server, question, times=3):
    for attempt in range(times):
        try:
            return ask(server, question)
        except TimeoutError:
            time.sleep(attempt)
    raise TimeoutError(question)
