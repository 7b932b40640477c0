// SPDX-License-Identifier: BSD-2-Clause
/*
 * negotiate.c - what an MPA Request and its Reply agree on (RFC 5044 §7.1, RFC
 * 6581, and stag's offer).
 *
 * Pure but for the configuration and the clock: frames in, frames and links
 * out. A peer's depths are capped before anything is made of them.
 */
#include "cm/cm.h"

#include "base/clock.h"

#define OUR_RTR (MPA_RTR_WRITE | MPA_RTR_READ)
#define OUR_CAPS                                                                                   \
	(MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU | MPA_EXT_SEND_IMM | MPA_EXT_FLUSH)

/* What is common; and one encoding of one-shot sends takes an opcode of immediate data for itself. */
static unsigned agreed_caps(unsigned caps, const struct mpa_frame *req, enum shot_encoding e)
{
	caps &= OUR_CAPS | (e != SHOT_NONE ? MPA_EXT_ONE_SHOT : 0) |
		(req->flags & MPA_ESCAPE_OFFER ? MPA_EXT_ESCAPE : 0);
	return e == SHOT_LITERAL ? caps & ~(unsigned)MPA_EXT_IMM : caps;
}

static uint16_t least(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

static uint8_t our_demands(void)
{
	return (uint8_t)((config()->crc ? MPA_CRC : 0) | (config()->markers ? MPA_MARKERS : 0));
}

void negotiate_request(const struct conn_wish *w, enum request_form form, struct mpa_frame *req)
{
	*req = (struct mpa_frame){.flags = our_demands(),
				  .rev = 1,
				  .private_data = w->private_data,
				  .private_len = w->private_len};
	if (form == REQUEST_PLAIN)
		return;
	req->rev = 2;
	req->flags |= MPA_ENHANCED;
	if (config()->extensions)
		req->flags |= MPA_EXT_OFFER | MPA_ESCAPE_OFFER |
			      (config()->one_shot ? MPA_SHOT_OFFER : 0);
	req->p2p = config()->p2p;
	req->rtr = req->p2p ? OUR_RTR : 0;
	req->ird = w->ird;
	req->ord = w->ord;
}

/* What two frames say alike to both sides. */
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
 * The depths of a responder. As siw, relaxed: no set-up fails because one side
 * asked for more than the other has. 0x3fff means "not negotiated", and is
 * mirrored (RFC 6581 §5).
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
		link->ird = 1; /* for the read that opens the stream */
	rep->ord = req->ird == MPA_DEPTH_NONE ? MPA_DEPTH_NONE : link->ord;
	rep->ird = req->ord == MPA_DEPTH_NONE ? MPA_DEPTH_NONE : link->ird;
}

/* When a responder may talk: RFC 5044 §7.1.2 rule 4, and who cannot keep it. */
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
	if (rep->p2p) /* at least one, also when none is common (RFC 6581 §9) */
		rep->rtr = req->rtr & OUR_RTR ? req->rtr & OUR_RTR : OUR_RTR;
}

/* Who accepts chooses the encoding of one-shot sends, where both sides have them. */
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
	rep->flags |= (uint8_t)(our_demands() | (req->flags & MPA_CRC));
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

/* A Reply's enhanced block: raise our IRD or fail, lower our ORD (RFC 6581 §5). */
static struct wire_fault take_depths(const struct mpa_frame *rep, struct qp_link *link)
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

/* Only a Reply that accepts what we offered changes anything (wire.md 4). */
static void take_extensions(const struct mpa_frame *req, const struct mpa_frame *rep,
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
	take_extensions(req, rep, link);
	if (!link->stag_peer)
		link->hold_until = first_delay();
	if (!(req->flags & rep->flags & MPA_ENHANCED))
		return WIRE_OK;
	fault = take_depths(rep, link);
	if (!fault.set)
		fault = take_rtr(req, rep, link);
	return fault;
}

void negotiate_depths(const struct mpa_frame *peer, uint8_t *initiator_depth,
		      uint8_t *responder_resources)
{
	bool told = peer->flags & MPA_ENHANCED;

	/* A peer that says nothing about its depths: as much as there is, as cxgb4 does. */
	*initiator_depth = (uint8_t)least(told ? peer->ird : MPA_DEPTH_NONE, STAG_MAX_RD_ATOM);
	*responder_resources = (uint8_t)least(told ? peer->ord : MPA_DEPTH_NONE, STAG_MAX_RD_ATOM);
}
