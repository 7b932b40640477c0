# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154,SC2034
#
# mpi.sh - Open MPI and MPICH, on UCX and on libfabric. The program is mpi_check.c, which checks every byte that it
# gets; it is compiled with each of the two.

# Both refuse to run as root, which an ordinary user is in a namespace of its own.
openmpi_vars='OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1'
ucx_vars='UCX_NET_DEVICES=roce0:1 UCX_TLS=rc_v,self'
openmpi='mpirun.openmpi --oversubscribe --mca pml ucx --mca osc ucx --mca btl ^openib'

# On one host, 2 or 4 processes; between hosts, half of them on each.
openmpi() {
	local name=$1 ranks=$2 shows=$3
	shift 3
	entry "$name" package openmpi-bin on 'roce0 hosts' run run_mpi limit 120 shows "$shows" vars "$ucx_vars $openmpi_vars" \
		client "$openmpi -np $ranks HOSTS MPI_CHECK" ranks "$ranks" "$@"
}

mpich() {
	local name=$1 ranks=$2 shows=$3
	shift 3
	entry "$name" package mpich on 'roce0 hosts' run run_mpi limit 120 shows "$shows" vars "$ucx_vars" \
		client "mpiexec.mpich -np $ranks HOSTS MPI_CHECK" ranks "$ranks" "$@"
}

mpi_shows='messages of all sizes, allreduce, alltoall, broadcast, put, get, accumulate; data checked'
openmpi openmpi 2 "pml ucx: $mpi_shows" often 'roce0 hosts' trace yes
openmpi openmpi-4 4 'the same with four processes'
openmpi openmpi-ud 2 'the same by datagrams' vars "UCX_NET_DEVICES=roce0:1 UCX_TLS=ud_v,self $openmpi_vars"
mpich mpich 2 "ch4:ucx: $mpi_shows" often 'roce0 hosts'
mpich mpich-4 4 'the same with four processes'

# libfabric ignores lo. Its provider ofi_rxm has no atomics: the one-sided calls go through messages. Between hosts it does
# not work: libfabric names each process by the address of localhost, which no hardware, but this adapter accepts.
entry openmpi-ofi package openmpi-bin on 'stag0 roce0' run run_mpi limit 120 namespace yes addr 10.77.0.1 vars "$openmpi_vars" ranks 2 \
	client 'mpirun.openmpi --oversubscribe --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm --mca btl ^openib,ofi --mca osc ^ucx,rdma -np 2 HOSTS MPI_CHECK' \
	shows "libfabric, mtl ofi, provider verbs;ofi_rxm: $mpi_shows" often 'stag0 roce0'

# Each process writes a capture: that is how we know that it used the adapter.
run_mpi() {
	local words trace=$work/rank-%p.pcapng file captures
	fill_in_mpi "$(of client)"
	client_host='' client "${words[@]}" || return
	grep -q "all as expected" "$work/client" || fail "it did not say that all is as expected" || { show "$work/client"; return 1; }
	captures=("$work"/rank-*.pcapng)
	((${#captures[@]} == $(of ranks))) || fail "${#captures[@]} of $(of ranks) processes used the adapter" || return
	[[ $(of trace) != yes ]] || captures "${captures[@]}"
}

# fill_in_mpi COMMAND: as words, with the program and the hosts
fill_in_mpi() {
	local kind=openmpi hosts='' text=$1
	[[ $(of package) == mpich ]] && kind=mpich
	if [[ $column == hosts ]]; then
		hosts="--host 10.77.0.1:$(($(of ranks) / 2)),10.77.0.2:$(($(of ranks) / 2)) --mca plm_rsh_agent $here/on-host"
		[[ $kind != mpich ]] || hosts="-hosts 10.77.0.1,10.77.0.2 -launcher ssh -launcher-exec $here/on-host"
	fi
	text=${text//HOSTS/$hosts}
	fill_in "${text//MPI_CHECK/$STAG_BUILD/tests/e2e/mpi_check_$kind 65536}"
}
