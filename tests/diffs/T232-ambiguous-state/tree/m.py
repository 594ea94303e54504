top = 1
x
x
x
x
x
x
x
x
x
end = 1
