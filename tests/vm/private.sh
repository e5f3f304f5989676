#!/usr/bin/env bash
# Runs a command with a network, mounts and processes of its own, as root. Whatever it starts, plugs in or
# mounts is gone when it ends, however that happens: there is no other way for it to stay. Looks whether that
# is so.
#
#     tests/vm/private.sh COMMAND...
set -euo pipefail

# libvirt's places, and those of sockets, pid files and named namespaces.
EMPTY=(/run /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt)
USER_OF_LIBVIRT=libvirt-qemu
declare -A IDS=([passwd]=64055::/:/usr/sbin/nologin [group]=)

if [[ ${1:-} == --inside ]]; then
  shift
  for folder in "${EMPTY[@]}"; do
    mount -t tmpfs tmpfs "$folder"
  done
  # libvirt does not start without it, although qemu.conf says that nobody shall become it.
  for list in passwd group; do
    { cat "/etc/$list" && echo "$USER_OF_LIBVIRT:x:64055:${IDS[$list]}"; } >"/etc/libvirt/$list"
    mount --bind "/etc/libvirt/$list" "/etc/$list"
  done
  # What is there shows the network of whoever has mounted it.
  mount -t sysfs sysfs /sys
  ip link set lo up
  export LABCTL_TESTS_PRIVATE=true
  # Not with exec: the first process must take up the orphans of the others.
  "$@" && exit 0 || exit $?
fi

[[ $(id -u) == 0 ]] || { echo "Namespaces need root." >&2; exit 4; }

# Only what could be the test's: others come and go on this machine, too.
traces() {
  { ip -o link | grep -oE '\b(brq|tap)[^:@]*'; ip netns list | grep ^qdhcp; pgrep -a qemu-system; grep libvirt /proc/mounts; } |
    sort || true
}

made=()
trap '((${#made[@]} == 0)) || rmdir "${made[@]}"' EXIT
for folder in "${EMPTY[@]}"; do
  [[ -d $folder ]] || { mkdir "$folder" && made+=("$folder"); }
done
before=$(traces)
code=0
unshare --net --mount --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" --inside "$@" || code=$?
new=$(comm -13 <(echo "$before") <(traces))
[[ -n $new ]] || exit "$code"
printf 'This was not there before the test:\n%s\n' "$new" >&2
exit 1
