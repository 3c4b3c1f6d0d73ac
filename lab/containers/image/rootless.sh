#!/bin/sh
# In a mount namespace of its own: gives the user $3 a share of ids ($1/share), and becomes it for the command behind, whose notes lie in $2.
set -e
home=$1 run=$2 user=$3
shift 3
mount --bind "$home/share" /etc/subuid
mount --bind "$home/share" /etc/subgid
exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups env -i PATH="$PATH" HOME="$home/home" XDG_RUNTIME_DIR="$run" "$@"
