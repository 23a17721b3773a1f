#!/bin/sh
# First process of the guest: modules, network, then the script of the test, which talks over the console.
#   say WORDS     one line for the test
#   ask WORDS     the same, and wait until the test has done what it says
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
say() { echo "@@ $*"; }
ask() { say "ask $*"; read -r answer; }

for module in $(cat /modules/order); do
  options=$(sed -n "s/^$module //p" /etc/modules.options 2>/dev/null)
  # shellcheck disable=SC2086
  insmod "/modules/$module.ko" $options || say "error: module $module"
done
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
PORT=$(sed -n 's/.*nvme_port=\([0-9]*\).*/\1/p' /proc/cmdline)
say ready
. /test.sh
say end
poweroff -f
