// SPDX-License-Identifier: BSD-2-Clause
/*
 * negotiate.c - the outcome of an MPA Request and its Reply (RFC 5044 §7.1, RFC 6581, and stag's
 * offer).
 *
 * Pure functions except for the configuration and the clock: frames in, frames and links out. A
 * peer's depths are clamped before use.
 */
#include "cm/cm.h"

#include "base/clock.h"

#define OUR_RTR (MPA_RTR_WRITE | MPA_RTR_READ)
#define OUR_CAPS                                                                                   \
	(MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU | MPA_EXT_SEND_IMM | MPA_EXT_FLUSH)

/*
 * Returns the common capabilities; one encoding of one-shot sends uses an opcode of immediate data.
 */
static unsigned agreed_caps(unsigned caps, const struct mpa_frame *req, enum shot_encoding e)
{
	caps &= OUR_CAPS | (e != SHOT_NONE ? MPA_EXT_ONE_SHOT : 0) |
		(req->flags & MPA_ESCAPE_OFFER ? MPA_EXT_ESCAPE : 0) |
		(req->flags & MPA_SUM_OFFER ? MPA_EXT_SUM : 0);
	return e == SHOT_LITERAL ? caps & ~(unsigned)MPA_EXT_IMM : caps;
}

static uint16_t least(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

/* TLS protects every byte already: then a CRC is not requested. */
static uint8_t our_demands(const struct conn_wish *w)
{
	return (uint8_t)((config()->crc && !w->encrypted ? MPA_CRC : 0) |
			 (config()->markers ? MPA_MARKERS : 0));
}

void negotiate_request(const struct conn_wish *w, enum request_form form, struct mpa_frame *req)
{
	*req = (struct mpa_frame){.flags = our_demands(w),
				  .rev = 1,
				  .private_data = w->private_data,
				  .private_len = w->private_len};
	if (form == REQUEST_PLAIN)
		return;
	req->rev = 2;
	req->flags |= MPA_ENHANCED;
	if (config()->extensions)
		req->flags |= MPA_EXT_OFFER | MPA_ESCAPE_OFFER | MPA_SUM_OFFER |
			      (config()->one_shot ? MPA_SHOT_OFFER : 0);
	req->p2p = config()->p2p;
	req->rtr = req->p2p ? OUR_RTR : 0;
	req->ird = w->ird;
	req->ord = w->ord;
}

/* Sets the parts of a link that both sides derive alike from the two frames. */
static void link_from_frames(const struct mpa_frame *ours, const struct mpa_frame *peer,
			     struct qp_link *link)
{
	link->crc = (ours->flags | peer->flags) & MPA_CRC;
	link->markers_tx = peer->flags & MPA_MARKERS;
	link->markers_rx = ours->flags & MPA_MARKERS;
	link->mpa_rev = ours->rev < peer->rev ? ours->rev : peer->rev;
}

static uint64_t first_delay(void)
{
	return clock_ns() + config()->first_delay_ms * NS_PER_MS;
}

/*
 * Sets the depths of a responder. Like siw, relaxed: no set-up fails because one side requests more
 * than the other has. 0x3fff means "not negotiated", and is mirrored (RFC 6581 §5).
 */
static void reply_depths(const struct mpa_frame *req, const struct conn_wish *w,
			 struct mpa_frame *rep, struct qp_link *link)
{
	link->ord = w->ord;
	link->ird = w->ird;
	if (!(req->flags & MPA_ENHANCED))
		return;
	if (req->ird != MPA_DEPTH_NONE)
		link->ord = least(w->ord, req->ird);
	if (req->ord != MPA_DEPTH_NONE && req->ord > link->ird)
		link->ird = least(req->ord, STAG_MAX_RD_ATOM);
	if (rep->p2p && !(rep->rtr & MPA_RTR_WRITE) && !link->ird)
		link->ird = 1; /* for the read that is the ready-to-receive message */
	rep->ord = req->ird == MPA_DEPTH_NONE ? MPA_DEPTH_NONE : link->ord;
	rep->ird = req->ord == MPA_DEPTH_NONE ? MPA_DEPTH_NONE : link->ird;
}

/*
 * Decides when a responder may send first: RFC 5044 §7.1.2 rule 4, with the peers that cannot keep
 * it.
 */
static void reply_hold(const struct mpa_frame *rep, struct qp_link *link)
{
	link->wait_first = link->p2p || rep->rev < 2;
	if (!link->wait_first && !link->stag_peer)
		link->hold_until = first_delay();
}

static void reply_base(const struct mpa_frame *req, const struct conn_wish *w,
		       struct mpa_frame *rep)
{
	*rep = (struct mpa_frame){.reply = true,
				  .rev = req->rev,
				  .private_data = w->private_data,
				  .private_len = w->private_len};
	rep->flags = req->flags & MPA_ENHANCED;
	rep->p2p = req->p2p;
	if (rep->p2p) /* at least one, even if none is common (RFC 6581 §9) */
		rep->rtr = req->rtr & OUR_RTR ? req->rtr & OUR_RTR : OUR_RTR;
}

/* The accepting side chooses the encoding of one-shot sends, if both sides support them. */
static void reply_extensions(const struct mpa_frame *req, struct mpa_frame *rep,
			     struct qp_link *link)
{
	if (!(req->flags & MPA_EXT_OFFER) || !(req->flags & MPA_ENHANCED) || !config()->extensions)
		return;
	link->stag_peer = true;
	link->one_shot = req->flags & MPA_SHOT_OFFER ? config()->one_shot : SHOT_NONE;
	link->caps = agreed_caps(~0u, req, link->one_shot);
	rep->flags |= MPA_EXT_ACCEPT;
	rep->ext = (struct mpa_ext){
		.version = 1, .encoding = link->one_shot, .caps = (uint16_t)link->caps};
}

void negotiate_reply(const struct mpa_frame *req, const struct conn_wish *w, struct mpa_frame *rep,
		     struct qp_link *link)
{
	reply_base(req, w, rep);
	rep->flags |= (uint8_t)(our_demands(w) | (req->flags & MPA_CRC));
	*link = (struct qp_link){.p2p = rep->p2p};
	reply_extensions(req, rep, link);
	link_from_frames(rep, req, link);
	reply_depths(req, w, rep, link);
	reply_hold(rep, link);
}

void negotiate_reject(const struct mpa_frame *req, const struct conn_wish *w, struct mpa_frame *rep)
{
	struct qp_link unused = {0};

	reply_base(req, w, rep);
	rep->flags |= MPA_REJECT | (req->flags & MPA_CRC);
	reply_depths(req, w, rep, &unused);
}

/* Applies a Reply's enhanced block: raises our IRD or fails, lowers our ORD (RFC 6581 §5). */
static struct wire_fault apply_depths(const struct mpa_frame *rep, struct qp_link *link)
{
	if (rep->ird != MPA_DEPTH_NONE)
		link->ord = least(link->ord, rep->ird);
	if (rep->ord == MPA_DEPTH_NONE || rep->ord <= link->ird)
		return WIRE_OK;
	if (rep->ord > STAG_MAX_RD_ATOM)
		return FAULT_MPA_IRD;
	link->ird = rep->ord;
	return WIRE_OK;
}

static struct wire_fault take_rtr(const struct mpa_frame *req, const struct mpa_frame *rep,
				  struct qp_link *link)
{
	uint8_t common = req->rtr & rep->rtr;

	link->p2p = req->p2p && rep->p2p;
	if (!link->p2p)
		return WIRE_OK;
	if (!common)
		return FAULT_MPA_RTR;
	link->rtr = common & MPA_RTR_WRITE ? MPA_RTR_WRITE : MPA_RTR_READ;
	return WIRE_OK;
}

/* Only a Reply that accepts our offer has an effect (wire.md 4). */
static void apply_extensions(const struct mpa_frame *req, const struct mpa_frame *rep,
			     struct qp_link *link)
{
	if (!(req->flags & MPA_EXT_OFFER) || !(rep->flags & MPA_EXT_ACCEPT))
		return;
	if (rep->ext.version != 1)
		return;
	link->stag_peer = true;
	if ((req->flags & MPA_SHOT_OFFER) && (rep->ext.caps & MPA_EXT_ONE_SHOT) &&
	    rep->ext.encoding <= SHOT_BITS)
		link->one_shot = rep->ext.encoding;
	link->caps = agreed_caps(rep->ext.caps, req, link->one_shot);
}

struct wire_fault negotiate_link(const struct mpa_frame *req, const struct mpa_frame *rep,
				 const struct conn_wish *w, struct qp_link *link)
{
	struct wire_fault fault = WIRE_OK;

	*link = (struct qp_link){.initiator = true, .ird = w->ird, .ord = w->ord};
	link_from_frames(req, rep, link);
	apply_extensions(req, rep, link);
	if (!link->stag_peer)
		link->hold_until = first_delay();
	if (!(req->flags & rep->flags & MPA_ENHANCED))
		return WIRE_OK;
	fault = apply_depths(rep, link);
	if (!fault.set)
		fault = take_rtr(req, rep, link);
	return fault;
}

void negotiate_param(const struct mpa_frame *peer, struct rdma_conn_param *p)
{
	bool told = peer->flags & MPA_ENHANCED;

	/* A peer that announces no depths gets the maximum, as with cxgb4. */
	*p = (struct rdma_conn_param){
		.private_data = peer->private_data,
		.private_data_len = (uint8_t)least(peer->private_len, CM_MAX_PRIVATE),
		.initiator_depth =
			(uint8_t)least(told ? peer->ird : MPA_DEPTH_NONE, STAG_MAX_RD_ATOM),
		.responder_resources =
			(uint8_t)least(told ? peer->ord : MPA_DEPTH_NONE, STAG_MAX_RD_ATOM)};
}
