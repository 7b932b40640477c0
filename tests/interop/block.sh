# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# block.sh - stag's block target with the initiator of the Linux kernel and Debian's open-iscsi, and stag's initiator with the
# target of the kernel.
#
# Over iSCSI (iscsi_tcp) and over iSER (ib_iser, on siw): a disk is found, gets a file system, is written, read, trimmed
# and logged out of. The target is `stag block serve`. The other way it is `stag block write` and `read`, over iSCSI
# only: the kernel's target listens for TCP on the port of iSER, and siw shares its ports with TCP.
#
# Also stag in the guest: its initiator, and one-shot sends (lend), on siw, which is a real adapter to them.
#
# siw.sh sources it, with the functions that store.sh needs. Over iSER there is no CRC: siw (6.1) overwrites the first half of a
# CRC that arrives in two parts with the second, and QEMU's network cuts a stream anywhere.

block_name=iqn.2026-01.stag:disk
lender=$STAG_BUILD/tests/interop/lend

# The program that runs in the guest.
use_disk() {
	cat <<-'USE'
	#!/bin/sh
	# use-disk serve PORT | begin | new PORT [NAME=VALUE...] | login | fill FILE | check FILE | leave
	name=iqn.2026-01.stag:disk
	node() { iscsiadm -m node -T $name "$@"; }
	await() { # COMMAND...: waits until it succeeds
		n=0
		until "$@" >/dev/null 2>&1; do
			n=$((n + 1)); [ $n -lt 300 ] || { echo "use-disk: not in time: $*"; exit 1; }
			usleep 100000
		done
	}
	ready() { [ -s /sys/block/sda/size ] && head -c 512 /dev/sda; }
	gone() { ! [ -e /sys/block/sda ]; }
	drop() { echo 3 >/proc/sys/vm/drop_caches; }
	set -e
	what=$1; shift
	case $what in
	serve)
		for m in target_core_file iscsi_target_mod; do modprobe $m; done
		mount -t configfs config /sys/kernel/config
		cd /sys/kernel/config/target
		mkdir -p core/fileio_0/disk iscsi/$name/tpgt_1
		truncate -s 16M /tmp/disk
		echo fd_dev_name=/tmp/disk,fd_dev_size=16777216 >core/fileio_0/disk/control
		echo 1 >core/fileio_0/disk/enable
		cd iscsi/$name/tpgt_1
		mkdir lun/lun_0 np/0.0.0.0:$1
		ln -s /sys/kernel/config/target/core/fileio_0/disk lun/lun_0/disk
		echo 1 >attrib/generate_node_acls
		echo 0 >attrib/authentication
		echo 0 >attrib/demo_mode_write_protect
		echo 1 >enable ;;
	begin)
		for m in sd_mod iscsi_tcp ib_iser ext4; do modprobe $m; done
		mkdir -p /run/lock /var/lib /etc/iscsi /mnt
		ln -s /run /var/run; ln -s /run/lock /var/lock
		echo InitiatorName=iqn.2026-01.stag:guest >/etc/iscsi/initiatorname.iscsi
		: >/etc/iscsi/iscsid.conf
		start iscsid iscsid -f
		await grep -q ISCSIADM_ABSTRACT_NAMESPACE /proc/net/unix ;;
	new)
		node -p 10.0.2.2:$1 -o new; shift
		for word in "$@"; do node -o update -n "${word%%=*}" -v "${word#*=}"; done ;;
	login) node --login && await ready ;;
	fill)
		mke2fs -q -F -t ext4 /dev/sda
		mount -t ext4 /dev/sda /mnt
		head -c 3000000 /dev/urandom >$1
		cp $1 /mnt/file; sync ;;
	check)
		drop; cmp $1 /mnt/file
		rm /mnt/file; fstrim /mnt
		umount /mnt; e2fsck -fn /dev/sda ;;
	leave) node --logout; await gone; node -o delete ;;
	esac
	USE
}

# on-siw COMMAND...: runs a program of stag in the guest, on the real adapter; the library was added with lend.
on_siw() {
	cat <<-'ON'
	#!/bin/sh
	export STAG_CM=real STAG_LIB=/lib/x86_64-linux-gnu/libstag-verbs.so.0
	exec "$@"
	ON
}

# to_guest NAME FUNCTION: installs the output of the function as a program in the guest.
to_guest() {
	guest "echo $("$2" | base64 -w0) | base64 -d >/bin/$1 && chmod 755 /bin/$1"
}

serve_block() {
	(STAG_CRC=off at_home "$stag" block serve --name "$block_name" --address 127.0.0.1 --port "$block_port" \
		--lun "1=$disk" "$@") >"$dir/ours" 2>"$dir/errors" &
	server=$!
	wait_listen "$block_port" "$server"
}

stop_block() {
	kill "$server" 2>/dev/null
	wait "$server"
	because "stag block serve" $?
	server=''
}

# linux COMMAND...: runs it in the guest; after a failure nothing more is run.
linux() {
	[[ -z $reason ]] || return
	peer "$@" >"$dir/theirs" 2>&1
	because "the guest's $1 $2" $?
}

# The file behind the disk has ext4's magic number.
has_file_system() {
	[[ $(od -An -tx2 -j 1080 -N 2 "$disk") == ' ef53' ]]
}

linux_uses_it() {
	linux use-disk login
	linux use-disk fill /tmp/bytes
	linux use-disk check /tmp/bytes
	linux use-disk leave
	has_file_system || reason+="${reason:+, }no file system in the file"
}

over_iscsi() {
	echo 'what only Linux knows' >"$dir/traces/secret"
	echo 'what only we know' >"$dir/traces/own"
	serve_block --user linux --secret-file "$dir/traces/secret" --own-user stag --own-secret-file "$dir/traces/own"
	linux use-disk new "$block_port" node.conn[0].iscsi.HeaderDigest=CRC32C node.conn[0].iscsi.DataDigest=CRC32C \
		node.session.auth.authmethod=CHAP node.session.auth.username=linux "node.session.auth.password='what only Linux knows'" \
		node.session.auth.username_in=stag "node.session.auth.password_in='what only we know'"
	linux_uses_it
	stop_block
}

over_iser() {
	serve_block
	linux use-disk new "$block_port" iface.transport_name=iser
	linux_uses_it
	stop_block
}

# The target is killed while the kernel writes, and restarted.
over_two_targets() {
	serve_block
	linux use-disk new "$block_port" node.conn[0].timeo.noop_out_interval=0
	linux use-disk login
	linux start filler use-disk fill /tmp/bytes
	until has_file_system || [[ -n $reason ]]; do sleep 0.05; done
	pkill -KILL -P "$server" # $server itself is timeout(1)
	wait "$server" 2>/dev/null
	serve_block
	linux finish filler 50
	linux use-disk check /tmp/bytes
	linux use-disk leave
	stop_block
}

# Data written with digests is read without them, and the other way round.
linux_serves_it() {
	local url=iscsi://127.0.0.1:$relay_port/$block_name/0 bytes=$dir/traces/bytes
	linux use-disk serve "$guest_port"
	head -c 3000320 /dev/urandom >"$bytes" && chmod 644 "$bytes"
	[[ -z $reason ]] || return
	(at_home "$stag" block write "$url" "$bytes" --offset 1M --digests) >"$dir/ours" 2>"$dir/errors" &&
		(at_home "$stag" block write "$url" "$bytes" --offset 8M) >"$dir/ours" 2>"$dir/errors" &&
		(at_home "$stag" block read "$url" --offset 1M --length 3000320) 2>"$dir/errors" | cmp - "$bytes" &&
		(at_home "$stag" block read "$url" --offset 8M --length 3000320 --digests) 2>"$dir/errors" | cmp - "$bytes"
	because "stag block" $?
}

# One-shot sends on an adapter without them.
lend_on_siw() {
	(STAG_CRC=off at_home "$lender" serve 127.0.0.1 "$block_port") >"$dir/ours" 2>"$dir/errors" &
	server=$!
	wait_listen "$block_port" "$server"
	linux on-siw lend visit "$host" "$block_port"
	[[ -z $reason ]] || kill "$server" 2>/dev/null
	wait "$server"
	because "lend serve" $?
	server=''
	grep -q '^siw0, way 4$' "$dir/theirs" || reason+="${reason:+, }it was not siw, or another way"
}

# The file has what the initiator wrote, and the initiator reads the same.
stag_on_siw() {
	local url=iser://$host:$block_port/$block_name/1 sum
	serve_block
	linux head -c 3000320 /dev/urandom '>/tmp/bytes'
	linux on-siw stag block write "$url" /tmp/bytes --offset 1M
	linux on-siw stag block read "$url" --offset 1M --length 3000320 '>/tmp/back'
	linux cmp /tmp/bytes /tmp/back
	linux on-siw stag block info "$url" "| grep -x 'transport  iSER'"
	sum=$(guest 'sha256sum </tmp/bytes')
	[[ $sum == "$(tail -c +1048577 "$disk" | head -c 3000320 | sha256sum)" ]] || reason+="${reason:+, }the file has other bytes"
	stop_block
}

block_story() {
	reason=''
	block_port=$(free_port) disk=$dir/traces/block
	rm -f "$disk" && truncate -s 16M "$disk" && chmod 666 "$disk"
	"$2"
	report "$1"
}

block_stories() {
	to_guest use-disk use_disk
	to_guest on-siw on_siw
	reason=''
	linux use-disk begin
	[[ -z $reason ]] || { report 'block: the guest has an initiator'; return; }
	block_story 'block: Linux over iSCSI, with digests, and secrets on both sides' over_iscsi
	block_story 'block: Linux over iSER' over_iser
	block_story 'block: Linux outlives the target' over_two_targets
	block_story "block: Linux's target" linux_serves_it
	block_story 'block: one-shot sends on siw' lend_on_siw
	block_story "block: stag's initiator on siw" stag_on_siw
}
