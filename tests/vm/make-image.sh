#!/usr/bin/env bash
# Builds the guest of `make test-vm`: Debian 12 with cloud-init, sshd and Python, and nothing of labctl. As root;
# writes kernel, initrd and disk.qcow2 into FOLDER. Packages come from where this machine's own come from,
# or from DEBIAN_MIRROR.
#
#     tests/vm/make-image.sh FOLDER
set -euo pipefail

SUITE=bookworm
DISK=1600M
PACKAGES=(
  linux-image-cloud-amd64 systemd-sysv dbus udev kmod zstd netbase procps sudo
  ifupdown isc-dhcp-client iproute2
  openssh-server cloud-init python3
  # debootstrap does not find by itself who provides what cloud-init's libraries want.
  python3-cffi-backend
)

say() { printf '%s\n' "$*" >&2; }

mkdir -p "$1"
folder=$(realpath "$1")
work=$folder/work
root=$work/root
mirror=${DEBIAN_MIRROR:-$(
  apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
    awk -v suite=$SUITE '$1 == suite {print $2; exit}'
)}
if [[ -z $mirror ]]; then
  say "This machine's apt has no source of Debian $SUITE; name one: DEBIAN_MIRROR=..."
  exit 4
fi
proxy=$(apt-config shell found Acquire::http::Proxy)
eval "${proxy:-found=}"
[[ -z $found || $found == DIRECT ]] || export http_proxy=$found

mkdir -p "$work"
# debootstrap leaves mounts behind when it is stopped: in a mount namespace of our own they go with us.
if [[ ${LABCTL_TESTS_MOUNTS:-} != private ]]; then
  code=0
  LABCTL_TESTS_MOUNTS=private unshare --mount "${BASH_SOURCE[0]}" "$folder" || code=$?
  rm -rf --one-file-system "$work"
  exit "$code"
fi

say "Building a Debian guest in $folder: a few minutes, once"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
IFS=, eval 'list="${PACKAGES[*]}"'
if ! debootstrap --variant=minbase --include="$list" "$SUITE" "$root" "$mirror" >"$folder/debootstrap.log"; then
  tail -n 20 "$folder/debootstrap.log" >&2
  exit 4
fi

echo '/dev/vda / ext4 defaults,noatime 0 1' >"$root/etc/fstab"
echo guest >"$root/etc/hostname"
# No service of metadata is waited for; the rest of cloud-init is as Debian has it.
cat >"$root/etc/cloud/cloud.cfg.d/90-guest.cfg" <<END
datasource_list: [ConfigDrive, None]
# There are none in so small a system.
locale: false
END
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -f "$root"/etc/ssh/ssh_host_*
: >"$root/etc/machine-id"

# What the disk and the drive with the user data need and no more: unpacking is slow where every instruction is
# translated. Without the latter cloud-init now and then looks for the drive before it is there, and does nothing.
printf '%s\n' virtio_pci virtio_blk ext4 ata_piix sr_mod isofs >>"$root/etc/initramfs-tools/modules"
echo 'MODULES=list' >"$root/etc/initramfs-tools/conf.d/guest"
chroot "$root" update-initramfs -u -k all >>"$folder/debootstrap.log" 2>&1
cp "$root"/boot/vmlinuz-* "$folder/kernel"
cp "$root"/boot/initrd.img-* "$folder/initrd"
rm -rf "$root"/boot/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*

rm -f "$work/disk.raw"
mke2fs -q -t ext4 -d "$root" "$work/disk.raw" "$DISK"
qemu-img convert -c -O qcow2 "$work/disk.raw" "$work/disk.qcow2"
mv "$work/disk.qcow2" "$folder/disk.qcow2"
say "Built: $(du -sh --apparent-size "$folder/disk.qcow2" | cut -f1) of disk image"
