/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - the libibverbs API: declarations that its files share, and that src/cm uses.
 *
 * Each public function checks whether its object is ours. If not, the call is passed to the
 * real library. If it is, the arguments are checked as uverbs and an iWARP adapter would, the
 * adapter is called, and -errno becomes errno.
 */
#ifndef STAG_VERBS_H
#define STAG_VERBS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "adapter/adapter.h"
#include "base/export.h"
#include "base/log.h"

/* ---- real.c: the library that we stand before -------------------------- */

struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ibv_sa_path_rec;
struct ib_user_path_rec;

/* Exported by libibverbs, but not declared in <infiniband/verbs.h>. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		       int *type);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
void ibv_register_driver(const char *name, void *init_func);
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

/* Calls of later releases of rdma-core: not every <infiniband/verbs.h> declares them. */
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
			      size_t size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
			    struct ibv_qp_attach_comp_cntr_attr *attr);

/* Every function of the real library that calls are passed to, with its version. */
#define REAL_FUNCTIONS(F)                                                                          \
	F(ack_async_event, "IBVERBS_1.1")                                                          \
	F(ack_cq_events, "IBVERBS_1.1")                                                            \
	F(alloc_buf, "IBVERBS_1.17")                                                               \
	F(alloc_dmah, "IBVERBS_1.15")                                                              \
	F(alloc_pd, "IBVERBS_1.1")                                                                 \
	F(attach_mcast, "IBVERBS_1.1")                                                             \
	F(close_device, "IBVERBS_1.1")                                                             \
	F(create_ah, "IBVERBS_1.1")                                                                \
	F(create_ah_from_wc, "IBVERBS_1.1")                                                        \
	F(create_comp_channel, "IBVERBS_1.0")                                                      \
	F(create_comp_cntr, "IBVERBS_1.18")                                                        \
	F(create_cq, "IBVERBS_1.1")                                                                \
	F(create_qp, "IBVERBS_1.1")                                                                \
	F(create_srq, "IBVERBS_1.1")                                                               \
	F(dealloc_dmah, "IBVERBS_1.15")                                                            \
	F(dealloc_pd, "IBVERBS_1.1")                                                               \
	F(dereg_mr, "IBVERBS_1.1")                                                                 \
	F(destroy_ah, "IBVERBS_1.1")                                                               \
	F(destroy_comp_channel, "IBVERBS_1.0")                                                     \
	F(destroy_comp_cntr, "IBVERBS_1.18")                                                       \
	F(destroy_cq, "IBVERBS_1.1")                                                               \
	F(destroy_qp, "IBVERBS_1.1")                                                               \
	F(destroy_srq, "IBVERBS_1.1")                                                              \
	F(detach_mcast, "IBVERBS_1.1")                                                             \
	F(dm_export_dmabuf_fd, "IBVERBS_1.16")                                                     \
	F(dofork_range, "IBVERBS_1.1")                                                             \
	F(dontfork_range, "IBVERBS_1.1")                                                           \
	F(export_buf_dmabuf_fd, "IBVERBS_1.18")                                                    \
	F(fork_init, "IBVERBS_1.1")                                                                \
	F(free_buf, "IBVERBS_1.17")                                                                \
	F(free_device_list, "IBVERBS_1.1")                                                         \
	F(get_async_event, "IBVERBS_1.1")                                                          \
	F(get_cq_event, "IBVERBS_1.1")                                                             \
	F(get_device_guid, "IBVERBS_1.1")                                                          \
	F(get_device_index, "IBVERBS_1.9")                                                         \
	F(get_device_list, "IBVERBS_1.1")                                                          \
	F(get_device_name, "IBVERBS_1.1")                                                          \
	F(get_pkey_index, "IBVERBS_1.5")                                                           \
	F(import_device, "IBVERBS_1.10")                                                           \
	F(import_dm, "IBVERBS_1.13")                                                               \
	F(import_mr, "IBVERBS_1.10")                                                               \
	F(import_pd, "IBVERBS_1.10")                                                               \
	F(inc_comp_cntr, "IBVERBS_1.18")                                                           \
	F(inc_err_comp_cntr, "IBVERBS_1.18")                                                       \
	F(init_ah_from_wc, "IBVERBS_1.1")                                                          \
	F(is_fork_initialized, "IBVERBS_1.13")                                                     \
	F(modify_qp, "IBVERBS_1.1")                                                                \
	F(modify_srq, "IBVERBS_1.1")                                                               \
	F(open_device, "IBVERBS_1.1")                                                              \
	F(qp_attach_comp_cntr, "IBVERBS_1.18")                                                     \
	F(qp_to_qp_ex, "IBVERBS_1.6")                                                              \
	F(query_device, "IBVERBS_1.1")                                                             \
	F(query_ece, "IBVERBS_1.10")                                                               \
	F(query_gid, "IBVERBS_1.1")                                                                \
	F(query_pkey, "IBVERBS_1.1")                                                               \
	F(query_port, "IBVERBS_1.1")                                                               \
	F(query_port_speed, "IBVERBS_1.16")                                                        \
	F(query_qp, "IBVERBS_1.1")                                                                 \
	F(query_qp_data_in_order, "IBVERBS_1.14")                                                  \
	F(query_srq, "IBVERBS_1.1")                                                                \
	F(read_comp_cntr, "IBVERBS_1.18")                                                          \
	F(read_err_comp_cntr, "IBVERBS_1.18")                                                      \
	F(reg_buf_mr, "IBVERBS_1.17")                                                              \
	F(reg_dmabuf_mr, "IBVERBS_1.12")                                                           \
	F(reg_mr, "IBVERBS_1.1")                                                                   \
	F(reg_mr_ex, "IBVERBS_1.15")                                                               \
	F(reg_mr_iova, "IBVERBS_1.7")                                                              \
	F(reg_mr_iova2, "IBVERBS_1.8")                                                             \
	F(register_driver, "IBVERBS_1.1")                                                          \
	F(rereg_mr, "IBVERBS_1.1")                                                                 \
	F(resize_cq, "IBVERBS_1.1")                                                                \
	F(resolve_eth_l2_from_gid, "IBVERBS_1.1")                                                  \
	F(set_comp_cntr, "IBVERBS_1.18")                                                           \
	F(set_ece, "IBVERBS_1.10")                                                                 \
	F(set_err_comp_cntr, "IBVERBS_1.18")                                                       \
	F(unimport_dm, "IBVERBS_1.13")                                                             \
	F(unimport_mr, "IBVERBS_1.10")                                                             \
	F(unimport_pd, "IBVERBS_1.10")

/* Pointers are NULL if the real library is missing or older than the function. */
struct real_verbs {
#define REAL_POINTER(name, version) __typeof__(&ibv_##name) name;
	REAL_FUNCTIONS(REAL_POINTER)
#undef REAL_POINTER
	/* these three have no ibv_ prefix */
	__typeof__(&_ibv_query_gid_ex) query_gid_ex;
	__typeof__(&_ibv_query_gid_table) query_gid_table;
	__typeof__(&_ibv_query_comp_cntr_caps) query_comp_cntr_caps;
	/* its version changes with rdma-core's private ABI */
	__typeof__(&ibv_query_gid_type) query_gid_type;
};

const struct real_verbs *real(void); /* opens the library at the first call */

static inline bool is_our_device(const struct ibv_device *device)
{
	return device == &stag_device(FACE_IWARP)->ibv || device == &stag_device(FACE_ROCE)->ibv;
}

static inline bool is_ours(const struct ibv_context *context)
{
	return is_our_device(context->device);
}

/* ---- device.c, context.c ----------------------------------------------- */

bool real_devices_exist(void); /* read once */
/* Opens rdma-core's library of that name, also where dlopen() of the name gives this one. */
void *real_library(const char *soname, int mode);

/*
 * Creates a context of a device with all its function pointers; the caller closes it with
 * ctx_destroy().
 */
int context_open(enum face face, struct stag_ctx **out);

/* Returns the context that all rdma_cm ids of a face share, or NULL and errno. It is never closed. */
struct ibv_context *stag_shared_context(enum face face);
bool is_shared_context(const struct ibv_context *context);

/* ---- query.c ----------------------------------------------------------- */

int verbs_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size);
int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		     size_t size);
int verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* ---- pd.c -------------------------------------------------------------- */

struct ibv_td *verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int verbs_dealloc_td(struct ibv_td *td);
struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr);

/* ---- mr.c, mw.c -------------------------------------------------------- */

int verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		    struct ibv_sge *sges, uint32_t n);
struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int verbs_dealloc_mw(struct ibv_mw *mw);

/* ---- cq.c, cq_ex.c ----------------------------------------------------- */

int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
/* Checks that both ways to create one share. Returns 0 or -EINVAL. */
int cq_check_attr(const struct ibv_context *context, const struct ibv_comp_channel *channel,
		  uint32_t vector);
void cq_ex_init(struct stag_cq *cq, bool single_threaded);

/* ---- srq.c ------------------------------------------------------------- */

struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *num);
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- qp.c, wr.c -------------------------------------------------------- */

/*
 * Also called by rdma_create_qp() and rdma_create_qp_ex(): checks, and sets the ibv_wr_*
 * pointers.
 */
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#define WR_SUPPORTED_OPS                                                                           \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                                 \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                 \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)

void wr_init(struct stag_qp *qp); /* the pointers of ibv_qp_ex */
int wr_send_advertise(struct ibv_qp_ex *ex, const struct stagdv_advertise *a, uint32_t *stag);
int wr_send_close(struct ibv_qp_ex *ex, uint32_t stag);

/* ---- foreign_shot.c: one-shot sends on queue pairs that are not ours -------- */

int foreign_advertise(struct ibv_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag);
int foreign_close(struct ibv_qp *qp, const struct stagdv_close *wr);
int foreign_withdraw(struct ibv_qp *qp, uint32_t stag, uint32_t *reference); /* may be NULL */
int foreign_one_shot(struct ibv_qp *qp, uint8_t *which); /* enum stagdv_one_shot */

/* Like the real library's functions; STags that the queue pair advertised end with it. */
int foreign_destroy_qp(struct ibv_qp *qp);
int foreign_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

/* ---- the turn of the sign ---------------------------------------------- */

/* Converts a constructor's result: NULL and errno, or the object. */
#define FACE_RETURN(err, object)                                                                   \
	do {                                                                                       \
		int face_err = (err);                                                              \
		if (face_err < 0) {                                                                \
			errno = -face_err;                                                         \
			return NULL;                                                               \
		}                                                                                  \
		return (object);                                                                   \
	} while (0)

/* Returns NULL and errno, and logs that an iWARP adapter does not support the call. */
static inline void *fail_with(int err)
{
	errno = err;
	return NULL;
}

/* The convention of a few old calls: -1 and errno. */
static inline int minus_one(int err)
{
	if (err >= 0)
		return 0;
	errno = -err;
	return -1;
}

#endif
