#!/usr/bin/env bash
# Installs the programs that tests need and pip cannot bring. As root with apt-get it does so; otherwise
# it says what to type, and the tests concerned are skipped, unless CI=true: then it fails. With the argument
# `vm` those that `make test-vm` needs besides.
set -euo pipefail

# A package, and the program by which it is known to be there; or none, for what is not a program.
declare -A PROGRAMS=(
  [mosquitto]=mosquitto
  [chromium]=chromium
  [openssh-server]=sshd
  [mariadb-server]=mariadbd
  [rabbitmq-server]=rabbitmq-server
)
[[ ${1:-} != vm ]] || PROGRAMS=(
  [openssh-server]=sshd
  [mariadb-server]=mariadbd
  [rabbitmq-server]=rabbitmq-server
  # Machines, and the disks that they are given.
  [qemu-system-x86]=qemu-system-x86_64
  [qemu-utils]=qemu-img
  [libvirt-daemon]=libvirtd
  [libvirt-daemon-driver-qemu]=
  [genisoimage]=genisoimage
  # Their network.
  [dnsmasq-base]=dnsmasq
  [dnsmasq-utils]=dhcp_release
  [iptables]=iptables
  # To build the guest, and what Nova needs to talk with libvirt.
  [debootstrap]=debootstrap
  [libvirt-dev]=
  [pkg-config]=pkg-config
  [gcc]=gcc
)
POLICY=/usr/sbin/policy-rc.d
KEPT=$POLICY.kept-by-labctl-tests
MARK="# by labctl's tests/system-packages.sh, for the time of an installation"
export PATH=$PATH:/usr/sbin:/sbin

give_up() {
  printf '%s\n' "$*" >&2
  [[ ${CI:-} != true ]] || exit 1
  exit 0
}

missing=()
for package in "${!PROGRAMS[@]}"; do
  command -v "${PROGRAMS[$package]}" >/dev/null ||
    dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q ' installed$' ||
    missing+=("$package")
done
((${#missing[@]})) || exit 0

command -v apt-get >/dev/null || give_up "Tests want ${missing[*]}; install it with your system's packager."
[[ $(id -u) == 0 ]] ||
  give_up "Tests want ${missing[*]}. Type: sudo apt-get install --no-install-recommends ${missing[*]}"

# Debian starts a service as soon as it is installed; tests start their own, on ports of their own.
# policy-rc.d is Debian's way to forbid it. What was there comes back, also after a run that was killed.
restore_policy() {
  if [[ -e $KEPT || -L $KEPT ]]; then
    mv -f "$KEPT" "$POLICY"
  elif [[ -f $POLICY ]] && grep -qF "$MARK" "$POLICY"; then
    rm -f "$POLICY"
  fi
}

forbid_services() {
  restore_policy
  # Container images come with such a policy already; then there is nothing to change.
  [[ ! -x $POLICY ]] || "$POLICY" "${missing[0]}" start >/dev/null 2>&1 || [[ $? != 101 ]] || return 0
  trap restore_policy EXIT
  trap 'exit 130' INT TERM HUP
  if [[ -e $POLICY || -L $POLICY ]]; then
    mv "$POLICY" "$KEPT"
  fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$MARK" >"$POLICY"
  chmod 755 "$POLICY"
}

echo "Installing ${missing[*]} for the tests" >&2
forbid_services
export DEBIAN_FRONTEND=noninteractive
install=(apt-get -y -q -o DPkg::Lock::Timeout=900 install --no-install-recommends "${missing[@]}")
# A fresh image has no package lists, an old one has lists that name files which are gone.
if ! "${install[@]}" >&2; then
  apt-get -q update >&2 && "${install[@]}" >&2 || give_up "apt-get could not install ${missing[*]}; see above."
fi
