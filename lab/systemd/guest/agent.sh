#!/bin/bash
# The guest's side of machine.py: runs each script that comes as a line of base64, and sends what it prints, then a line with its status.
port=/dev/virtio-ports/lab
exec 3<>"$port"
echo "LAB up" >&3
while read -r line <&3; do
    # Its own session: what it leaves behind belongs to nobody here.
    bash -c "$(base64 -d <<<"$line")" </dev/null 2>&1 3>&- | cat >&3
    printf '\nLAB ended %s\n' "${PIPESTATUS[0]}" >&3
done
