# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154
#
# cm.sh - programs about making connections.

entry ucmatose package rdmacm-utils limit 60 \
	shows '64 connections in one process; the passive side sends first' \
	server 'ucmatose -p PORT -c 64 -C 10 -S 1500' \
	client 'ucmatose -s ADDR -p PORT -c 64 -C 10 -S 1500'

entry ucmatose-migrate package rdmacm-utils \
	shows 'ids that move to another event channel' \
	server 'ucmatose -p PORT -m -c 8' \
	client 'ucmatose -s ADDR -p PORT -m -c 8'

entry cmtime package rdmacm-utils figure cmtime_figure limit 60 persistent yes \
	shows '500 connections, each step timed' \
	server 'cmtime -p PORT -c 500' \
	client 'cmtime -s ADDR -p PORT -c 500'

cmtime_figure() {
	awk '/^connect +:/ { print $NF " µs a connection" }'
}

entry rdma_client package rdmacm-utils \
	shows 'the synchronous calls: rdma_create_ep, rdma_get_request, inline sends' \
	server 'rdma_server -s ADDR -p PORT' \
	client 'rdma_client -s ADDR -p PORT'

entry rdma_xclient package rdmacm-utils \
	shows 'the same over a shared receive queue, reliable connected' \
	server 'rdma_xserver -p PORT -c r' \
	client 'rdma_xclient -s ADDR -p PORT -c r'
