// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_initiator_verbs.c - an initiator over verbs, with each protocol and each way to lend memory.
 *
 *   test_initiator_verbs one-shot | iser | regions
 *
 * The target is this program in another process, which can be killed; its unit is a file that is mapped here. regions: iSER, as on a
 * hardware adapter.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <rdma/rdma_verbs.h>

#include "await.h"
#include "block/initiator/initiator.h"
#include "dice.h"
#include "model.h"
#include "stag/stagdv.h"

#define SIZE   (4u << 20)
#define TARGET "iqn.2026-01.x:t"

static enum stag_block_transport transport;
static bool is_plain; /* the adapter pretends to be a hardware adapter */
static char path[] = "/dev/shm/stag-initiator-XXXXXX";
static uint8_t *shared;
static pid_t target;
static uint16_t port;
static struct stag_block *unit;

/* Replaces the adapter's function for code that finds it by name. */
__attribute__((visibility("default"))) bool stagdv_is_supported(struct ibv_device *device)
{
	bool (*adapters)(struct ibv_device *);

	*(void **)&adapters = dlsym(RTLD_NEXT, "stagdv_is_supported");
	return !is_plain && adapters(device);
}

/* ---- the target's process ---------------------------------------------------------------- */

static void no_log(void *arg, const char *line)
{
}

static int run_target_process(char **words)
{
	struct stag_block_lun lun = {.lun = 1, .where = words[3]};
	struct stag_block_target_attr attr = {.name = TARGET,
					      .address = "127.0.0.1",
					      .port = (uint16_t)atoi(words[0]),
					      .flags = (uint32_t)atoi(words[1]),
					      .log = no_log};
	struct stag_block_target *t;
	uint16_t got;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	t = stag_block_target_start(&attr);
	if (!t || stag_block_target_add(t, &lun) != 0) {
		fprintf(stderr, "%s\n", stag_block_error());
		return 1;
	}
	got = stag_block_target_port(t);
	if (write(atoi(words[2]), &got, sizeof(got)) != sizeof(got))
		return 1;
	for (;;)
		pause();
}

static void become_target(uint32_t flags, int to)
{
	char words[3][16];

	snprintf(words[0], 16, "%u", port);
	snprintf(words[1], 16, "%u", flags | (port ? 0 : STAG_BLOCK_ANY_PORT));
	snprintf(words[2], 16, "%d", to);
	execl("/proc/self/exe", "target", "serve", words[0], words[1], words[2], path, NULL);
	_exit(1);
}

/* Starts the target, on the same port as before if there was one. */
static void start_target(uint32_t flags)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	target = vfork();
	assert_true(target >= 0);
	if (target == 0)
		become_target(flags, ends[1]);
	close(ends[1]);
	assert_int_equal(read(ends[0], &port, sizeof(port)), sizeof(port));
	close(ends[0]);
}

static void kill_target(void)
{
	if (target > 0) {
		kill(target, SIGKILL);
		waitpid(target, NULL, 0);
	}
	target = 0;
}

static void replace_target(void)
{
	kill_target();
	start_target(0);
}

static const char *url(const char *scheme)
{
	static char words[128];

	snprintf(words, sizeof(words), "%s://127.0.0.1:%u/" TARGET "/1", scheme, port);
	return words;
}

static void open_unit(struct stag_block_attr attr)
{
	attr.transport = transport;
	unit = stag_block_open(url("stag"), &attr);
	if (!unit)
		fail_msg("%s", stag_block_error());
}

static struct stag_block_info query_unit(void)
{
	struct stag_block_info info;

	assert_int_equal(stag_block_query(unit, &info, sizeof(info)), 0);
	return info;
}

static int set_up(void **state)
{
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
	shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	close(fd);
	port = 0;
	unit = NULL;
	return 0;
}

static int tear_down(void **state)
{
	stag_block_close(unit);
	kill_target();
	munmap(shared, SIZE);
	unlink(path);
	return 0;
}

/* ---- stories ------------------------------------------------------------------------------- */

static uint32_t expected_encoding(void)
{
	const char *word = getenv("STAG_ONE_SHOT");

	if (transport != STAG_BLOCK_ONE_SHOT)
		return STAGDV_ONE_SHOT_NONE;
	if (!word)
		return STAGDV_ONE_SHOT_OPCODES;
	return strcmp(word, "bits") == 0 ? STAGDV_ONE_SHOT_BITS : STAGDV_ONE_SHOT_LITERAL;
}

static void the_transport_in_use_is_reported(void **state)
{
	struct stag_block_info info;

	start_target(0);
	open_unit((struct stag_block_attr){0});
	info = query_unit();
	assert_int_equal(info.transport, transport);
	assert_int_equal(info.encoding, expected_encoding());
	assert_int_equal(info.size, SIZE);
	assert_int_equal(info.counters.stags_open, 0);
}

static void requests_match_a_model(void **state)
{
	start_target(0);
	open_unit((struct stag_block_attr){0});
	lend_model(unit);
	run_model(unit, shared, scaled(600), 0, NULL);
	assert_int_equal(query_unit().counters.stags_open, 0);
	assert_int_equal(query_unit().counters.violations, 0);
}

/* Uses one command at a time, with more pieces than any adapter supports. */
static void memory_may_be_in_any_number_of_pieces(void **state)
{
	static uint8_t out[512 * 1024], in[512 * 1024];
	struct iovec iov[1024];
	struct stag_block_io io = {
		.op = STAG_BLOCK_READ, .length = sizeof(in), .iov = iov, .n_iov = 1024};
	struct stag_block_done done;

	start_target(0);
	open_unit((struct stag_block_attr){.depth = 1});
	dice_fill(out, sizeof(out));
	assert_int_equal(stag_block_write(unit, out, 0, sizeof(out), 0), 0);
	for (int i = 0; i < 1024; i++)
		iov[i] = (struct iovec){in + (i ^ 1) * 512, 512};
	assert_int_equal(stag_block_submit(unit, &io), 0);
	assert_int_equal(stag_block_wait(unit, 60000), 0);
	assert_int_equal(stag_block_poll(unit, &done, 1), 1);
	assert_int_equal(done.error, 0);
	for (int i = 0; i < 1024; i++)
		assert_memory_equal(in + (i ^ 1) * 512, out + i * 512, 512);
	assert_int_equal(query_unit().counters.stags_open, 0);
}

static void commands_survive_a_restart_of_the_target(void **state)
{
	struct stag_block_info info;

	start_target(0);
	open_unit((struct stag_block_attr){0});
	lend_model(unit);
	run_model(unit, shared, scaled(200), 60, replace_target);
	replace_target();
	assert_int_equal(stag_block_flush(unit), 0);
	info = query_unit();
	assert_true(info.counters.lost >= 1);
	assert_int_equal(info.counters.logins, info.counters.lost + 1);
	assert_int_equal(info.counters.stags_open, 0);
	assert_int_equal(info.counters.violations, 0);
	assert_int_equal(info.transport, transport);
}

static void memory_is_lent_and_withdrawn(void **state)
{
	static uint8_t memory[8192];
	uint64_t before;

	start_target(0);
	open_unit((struct stag_block_attr){0});
	before = query_unit().counters.registrations;
	assert_int_equal(stag_block_lend(unit, memory, sizeof(memory)), 0);
	assert_int_equal(stag_block_lend(unit, memory, sizeof(memory)), EEXIST);
	for (int i = 0; i < 4; i++)
		assert_int_equal(stag_block_write(unit, memory + 512 * i, 0, 4096, 0), 0);
	assert_int_equal(query_unit().counters.registrations, before + 1);
	assert_int_equal(stag_block_unlend(unit, memory), 0);
	assert_int_equal(stag_block_unlend(unit, memory), ENOENT);
	assert_int_equal(stag_block_write(unit, memory, 0, 4096, 0), 0);
	assert_int_equal(query_unit().counters.registrations, before + 2);
}

/* ---- cost --------------------------------------------------------------------------------- */

static struct stagdv_counters adapter_counters(void)
{
	static struct ibv_context *context;
	struct ibv_device **list = context ? NULL : ibv_get_device_list(NULL);
	struct stagdv_counters c;

	if (list) {
		context = ibv_open_device(list[0]);
		ibv_free_device_list(list);
	}
	assert_int_equal(stagdv_query_counters(context, &c, sizeof(c)), 0);
	return c;
}

/* Checks the counters of adapter and initiator after 64 commands of 4 KiB. */
static void count_commands(uint8_t *memory, bool write)
{
	enum { MANY = 64 };
	struct stagdv_counters was = adapter_counters(), now;
	struct stag_block_counters own = query_unit().counters, after;

	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(write ? stag_block_write(unit, memory, 4096 * i, 4096, 0)
				       : stag_block_read(unit, memory, 4096 * i, 4096),
				 0);
	now = adapter_counters();
	after = query_unit().counters;
	assert_int_equal(now.posts - was.posts, MANY);
	assert_int_equal(now.receives - was.receives, MANY);
	assert_int_equal(now.registrations - was.registrations, is_plain ? 0 : MANY); /* STags */
	assert_int_equal(after.posts - own.posts, MANY);
	assert_int_equal(after.registrations - own.registrations, 0);
	assert_int_equal(after.stags - own.stags, MANY);
	assert_int_equal(after.stags_open, 0);
	if (is_plain)
		return;
	assert_int_equal(now.completions - was.completions, MANY);
	assert_int_equal(after.completions - own.completions, MANY);
	assert_int_equal(now.advertised - was.advertised, MANY);
	assert_int_equal(now.closed - was.closed, MANY);
}

static void one_post_and_one_completion(void **state)
{
	static uint8_t memory[4096];

	start_target(0);
	open_unit((struct stag_block_attr){0});
	assert_int_equal(stag_block_lend(unit, memory, sizeof(memory)), 0);
	count_commands(memory, true);
	count_commands(memory, false);
}

/* ---- cost without one-shot: figure 3 of "One-shot RDMA" ----------------------------------- */

#define BODY 1024u

/* An initiator that uses iSER by explicit verbs calls. */
struct hand {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint8_t bodies[2][BODY], data[4096];
	uint32_t cmd_sn;
	struct pdu in;
};

static void complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	await(ibv_poll_cq(cq, 1, &wc) == 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void post_and_complete(struct hand *h, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(h->id->qp, wr, &bad), 0);
	complete(h->id->send_cq);
}

static void send_pdu(struct hand *h, struct pdu *p, const struct iser *lent, const void *data,
		     uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)h->bodies[0],
			      ISER_LEN + BHS_LEN + len + iscsi_pdu_pad(len), h->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	assert_int_equal(rdma_post_recv(h->id, NULL, h->bodies[1], BODY, h->mr), 0);
	memset(h->bodies[0], 0, BODY);
	iscsi_iser_encode(lent, h->bodies[0]);
	p->data_len = len;
	iscsi_pdu_encode(p, h->bodies[0] + ISER_LEN);
	memcpy(h->bodies[0] + ISER_LEN + BHS_LEN, data, len);
	post_and_complete(h, &wr);
}

static void receive_pdu(struct hand *h)
{
	complete(h->id->recv_cq);
	assert_int_equal(iscsi_pdu_decode(h->bodies[1] + ISER_LEN, &h->in), 0);
}

static void come(struct hand *h)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_conn_param param = {
		.private_data = "\xc0\0\0", .private_data_len = 4, .responder_resources = 4};

	assert_int_equal(rdma_create_id(NULL, &h->id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(h->id, NULL, (struct sockaddr *)&to, 2000), 0);
	assert_int_equal(rdma_resolve_route(h->id, 2000), 0);
	assert_int_equal(rdma_create_qp(h->id, NULL, &qp), 0);
	h->mr = ibv_reg_mr(h->id->pd, h->bodies, sizeof(h->bodies), IBV_ACCESS_LOCAL_WRITE);
	h->mw = ibv_alloc_mw(h->id->pd, IBV_MW_TYPE_2);
	assert_true(h->mr && h->mw);
	assert_int_equal(rdma_connect(h->id, &param), 0);
}

static void log_in(struct hand *h)
{
	static const char keys[] =
		"InitiatorName=iqn.2026-01.x:i\0TargetName=" TARGET "\0RDMAExtensions=Yes";
	static const struct iser nothing;
	struct pdu p = {.opcode = LOGIN_REQUEST,
			.immediate = true,
			.flags = LOGIN_TRANSIT | LOGIN_STAGES(STAGE_OPERATIONAL, STAGE_FULL),
			.isid = {0x80},
			.cmd_sn = 1};

	send_pdu(h, &p, &nothing, keys, sizeof(keys));
	receive_pdu(h);
	assert_int_equal(h->in.opcode, LOGIN_RESPONSE);
	assert_int_equal(h->in.status_class, 0);
	h->cmd_sn = 1;
}

/* Paths 270 to 310, and 420 to 460, of the figure. */
static void carry_out(struct hand *h, bool write)
{
	const int rights =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *mr =
		ibv_reg_mr(h->id->pd, h->data, sizeof(h->data), rights | IBV_ACCESS_MW_BIND);
	struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW}, unbind = {.opcode = IBV_WR_LOCAL_INV};
	struct iser lent = {.write = write, .read = !write};
	struct pdu p = {.opcode = SCSI_COMMAND,
			.flags = PDU_FINAL | (write ? CMD_WRITE : CMD_READ),
			.lun = 1ull << 48,
			.itt = h->cmd_sn,
			.cmd_sn = h->cmd_sn,
			.expected = sizeof(h->data),
			.cdb = {write ? 0x2a : 0x28, 0, 0, 0, 0, 0, 0, 0, 8}};

	assert_non_null(mr);
	bind.bind_mw.mw = h->mw;
	bind.bind_mw.rkey = ibv_inc_rkey(h->mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){mr, (uintptr_t)h->data, sizeof(h->data),
					  write ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE};
	post_and_complete(h, &bind);
	h->mw->rkey = bind.bind_mw.rkey;
	lent.write_stag = lent.read_stag = h->mw->rkey;
	lent.write_base = lent.read_base = (uintptr_t)h->data;
	h->cmd_sn++;
	send_pdu(h, &p, &lent, "", 0);
	receive_pdu(h);
	assert_int_equal(h->in.opcode, SCSI_RESPONSE);
	unbind.invalidate_rkey = h->mw->rkey;
	post_and_complete(h, &unbind);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void leave(struct hand *h)
{
	rdma_disconnect(h->id);
	rdma_destroy_qp(h->id);
	ibv_dealloc_mw(h->mw);
	ibv_dereg_mr(h->mr);
	rdma_destroy_id(h->id);
}

static void register_bind_unbind_deregister_cost_more(void **state)
{
	struct hand h = {0};

	start_target(0);
	come(&h);
	log_in(&h);
	carry_out(&h, false); /* gets a unit attention */
	for (int write = 0; write <= 1; write++) {
		struct stagdv_counters was = adapter_counters(), now;

		carry_out(&h, write);
		assert_int_equal(h.in.status, SCSI_GOOD);
		now = adapter_counters();
		assert_int_equal(now.posts - was.posts, 3);
		assert_int_equal(now.completions - was.completions, 4);
		assert_int_equal(now.receives - was.receives, 1);
		assert_int_equal(now.registrations - was.registrations, 2);
	}
	leave(&h);
}

/* ---- transports ------------------------------------------------------------------------------ */

static enum stag_block_transport best(uint32_t flags)
{
	static uint8_t block[512];

	kill_target();
	port = 0;
	start_target(flags);
	unit = stag_block_open(url("stag"), NULL);
	if (!unit) {
		print_message("%s\n", stag_block_error());
		return STAG_BLOCK_BEST;
	}
	assert_int_equal(stag_block_read(unit, block, 0, sizeof(block)), 0);
	return query_unit().transport;
}

/* The initiator tries the next transport after a second: it may have to be asked again on a busy machine. */
static void expect_best(uint32_t flags, enum stag_block_transport want)
{
	enum stag_block_transport got = best(flags);

	for (int i = 0; i < 5 && got != want; i++) {
		stag_block_close(unit);
		got = best(flags);
	}
	assert_int_equal(got, want);
}

static void the_best_common_transport_is_used(void **state)
{
	expect_best(0, is_plain ? STAG_BLOCK_ISER : STAG_BLOCK_ONE_SHOT);
	stag_block_close(unit);
	expect_best(STAG_BLOCK_NO_ONE_SHOT, STAG_BLOCK_ISER);
	stag_block_close(unit);
	expect_best(STAG_BLOCK_NO_RDMA, STAG_BLOCK_TCP);
	stag_block_close(unit);
	expect_best(STAG_BLOCK_NO_TCP, is_plain ? STAG_BLOCK_ISER : STAG_BLOCK_ONE_SHOT);
}

static void a_required_transport_is_used_or_fails(void **state)
{
	struct stag_block_attr attr = {.transport = STAG_BLOCK_ONE_SHOT};

	start_target(STAG_BLOCK_NO_ONE_SHOT);
	assert_null(stag_block_open(url("stag"), &attr));
	assert_int_equal(errno, EPROTONOSUPPORT);
	unit = stag_block_open(url("iser"), NULL);
	assert_non_null(unit);
	assert_int_equal(query_unit().transport, STAG_BLOCK_ISER);
	kill_target();
	assert_null(stag_block_open(url("iser"), NULL));
	assert_int_equal(errno, ECONNREFUSED);
	assert_null(stag_block_open(url("stag"), NULL));
	assert_int_equal(errno, ECONNREFUSED);
}

static void take_target(void *arg, const char *name, const char *address)
{
	assert_string_equal(name, TARGET);
	++*(unsigned int *)arg;
}

static void discovery_lists_the_targets_of_a_portal(void **state)
{
	unsigned int seen = 0;
	char portal[64];

	start_target(0);
	snprintf(portal, sizeof(portal), "iser://127.0.0.1:%u", port);
	if (stag_block_discover(portal, NULL, take_target, &seen) != 0)
		fail_msg("%s", stag_block_error());
	assert_true(seen >= 1);
}

int main(int argc, char **argv)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		STORY(the_transport_in_use_is_reported),
		STORY(requests_match_a_model),
		STORY(memory_may_be_in_any_number_of_pieces),
		STORY(commands_survive_a_restart_of_the_target),
		STORY(memory_is_lent_and_withdrawn),
		STORY(one_post_and_one_completion),
		STORY(register_bind_unbind_deregister_cost_more),
		STORY(the_best_common_transport_is_used),
		STORY(a_required_transport_is_used_or_fails),
		STORY(discovery_lists_the_targets_of_a_portal),
	};

	if (argc == 6 && strcmp(argv[1], "serve") == 0)
		return run_target_process(argv + 2);
	if (argc != 2)
		return 2;
	transport = strcmp(argv[1], "one-shot") == 0 ? STAG_BLOCK_ONE_SHOT : STAG_BLOCK_ISER;
	is_plain = strcmp(argv[1], "regions") == 0;
	dice_start();
	return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}
