// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_boost.cpp - Boost.Interprocess's managed_shared_memory as a yardstick of `stag bench heap`:
 * a module that bench/heap and `stag bench` preload.
 */
#include "heap_peer.h"

#include <boost/interprocess/managed_shared_memory.hpp>

using boost::interprocess::create_only;
using boost::interprocess::interprocess_exception;
using boost::interprocess::managed_shared_memory;
using boost::interprocess::open_only;
using boost::interprocess::shared_memory_object;

static const size_t segment_size = (size_t)256 << 20;
static managed_shared_memory *segment;

static int create(const char *name)
{
	try {
		segment = new managed_shared_memory(create_only, name, segment_size);
	} catch (const interprocess_exception &) {
		return -1;
	}
	return 0;
}

static int attach(const char *name)
{
	try {
		segment = new managed_shared_memory(open_only, name);
	} catch (const interprocess_exception &) {
		return -1;
	}
	return 0;
}

static void detach()
{
	delete segment;
	segment = nullptr;
}

static void remove_name(const char *name)
{
	shared_memory_object::remove(name);
}

static void *take(size_t size)
{
	return segment->allocate(size, std::nothrow);
}

static void give(void *ptr)
{
	segment->deallocate(ptr);
}

extern "C" __attribute__((visibility("default"))) const struct bench_peer bench_peer = {
	"boost", "Boost.Interprocess", create, attach, detach, remove_name, take, give,
};
