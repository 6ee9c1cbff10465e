/* Asynchronous copies: cp.async by threads, and bulk copies by the copy engine, which are done at a time of their own.
 * What goes out of shared memory is read at one time and written at another. */
#include "ptx_code.h"
#include "tensor_map.h"

namespace emulator {
namespace ptx {

/* ---- cp.async ---------------------------------------------------------------------------------------------------- */

typedef std::vector<std::function<void()>> copies;

static void do_all(copies *list) {
    for (const auto &copy : *list) copy();
    list->clear();
}

/* bytes: 0: zeros are written. Done at once or when it is waited for. */
static void copy_chunk(uint32_t to, const void *from, size_t whole, size_t bytes) {
    unsigned char *place = shared_place(to, whole);
    if (to % whole || (uint64_t)from % whole) fail("a copy of %zu bytes from %p to %u", whole, from, to);
    auto copy = [=] {
        memset(place, 0, whole);
        memcpy(place, from, bytes);
    };
    if (chance(2))
        copy();
    else
        state_of(self).copies.push_back(copy);
}

/* [to], [from], bytes[, bytes that are read | a predicate: none is] */
static void copy_16(frame &f, const instruction &i) {
    bool none = i.parts.size() > 3 && i.parts[3][0].kind == reference::LOCAL && f.get(i, 3);
    bool counted = i.parts.size() > 3 && i.parts[3][0].kind != reference::LOCAL;
    copy_chunk((uint32_t)f.get(i, 0), (const void *)f.get(i, 1), 16, none ? 0 : counted ? f.get(i, 3) : 16);
}

static void copy_4(frame &f, const instruction &i) {
    copy_chunk((uint32_t)f.get(i, 0), (const void *)f.get(i, 1), 4, i.parts.size() > 3 ? f.get(i, 3) : 4);
}

static void commit_copies(frame &, const instruction &) {
    thread_state &t = state_of(self);
    t.copy_groups.push_back(std::move(t.copies));
    t.copies.clear();
}

static void wait_for_groups(frame &f, const instruction &i) {
    thread_state &t = state_of(self);
    while (t.copy_groups.size() > f.get(i, 0)) {
        do_all(&t.copy_groups.front());
        t.copy_groups.pop_front();
    }
}

static void wait_for_copies(frame &, const instruction &) {
    thread_state &t = state_of(self);
    for (copies &group : t.copy_groups) do_all(&group);
    t.copy_groups.clear();
    do_all(&t.copies);
}

/* ---- bulk copies to shared memory -------------------------------------------------------------------------------- */

/* The coordinates of [map, {x, y, ...}]. */
static void coordinates(const frame &f, const instruction &i, size_t part, const tensor_map &map,
                        int (&first)[MOST_DIMENSIONS]) {
    if ((int)i.parts[part].size() != map.dimensions + 1)
        fail("%s with a map of %d dimensions", i.name.c_str(), map.dimensions);
    for (int d = 0; d < map.dimensions; d++) first[d] = (int)(uint32_t)f.get(i, part, (size_t)d + 1);
}

/* [to], [map, {...}], [mbarrier] */
static void copy_box(frame &f, const instruction &i) {
    struct {
        tensor_map map;
        int first[MOST_DIMENSIONS];
        block *to, *waiting;
        uint32_t at, barrier;
    } c = {tensor_map_at(f.get(i, 1)), {}, nullptr, nullptr, 0, 0};
    coordinates(f, i, 1, c.map, c.first);
    c.to = block_at((uint32_t)f.get(i, 0), &c.at);
    c.waiting = block_at((uint32_t)f.get(i, 2), &c.barrier);
    c.to->copies_in++;
    put_on_list(COPY_IN, [c] {
        visit_box(c.map, c.first, c.at, [&](uint32_t place, unsigned char *device, size_t bytes) {
            unsigned char *to = place_in(c.to, place, 16);
            memset(to, 0, 16);
            if (bytes) memcpy(to, device, bytes);
        });
        c.to->copies_in--;
        mbarrier_complete(c.waiting, c.barrier, box_bytes(c.map));
    });
}

/* [to], [from], bytes, [mbarrier]: from this block to one of the cluster. */
static void copy_to_block(frame &f, const instruction &i) {
    uint32_t from, to, at;
    size_t bytes = (size_t)f.get(i, 2);
    block *source = block_at((uint32_t)f.get(i, 1), &from), *target = block_at((uint32_t)f.get(i, 0), &to);
    block *waiting = block_at((uint32_t)f.get(i, 3), &at);
    if (to % 16 || from % 16 || bytes % 16) fail("a copy of %zu bytes from %u to %u of another block", bytes, from, to);
    source->copies_in++;
    target->copies_in++;
    put_on_list(COPY_IN, [=] {
        memcpy(place_in(target, to, bytes), place_in(source, from, bytes), bytes);
        source->copies_in--;
        target->copies_in--;
        mbarrier_complete(waiting, at, (int64_t)bytes);
    });
}

/* ---- bulk copies out of shared memory ---------------------------------------------------------------------------- */

/* What has been read, and where it goes. */
struct outgoing {
    std::vector<std::pair<unsigned char *, std::vector<unsigned char>>> pieces;
};

static void put_out(const outgoing &what, bool adds) {
    for (const auto &piece : what.pieces)
        for (size_t at = 0; at < piece.second.size(); at += 4) {
            float x, y;
            if (!adds) {
                memcpy(piece.first, piece.second.data(), piece.second.size());
                break;
            }
            memcpy(&x, piece.first + at, 4);
            memcpy(&y, &piece.second[at], 4);
            x += y;
            memcpy(piece.first + at, &x, 4);
        }
}

/* Reads with `read` some time, writes what it says some time later; the thread's open group counts both. */
static void send_out(std::function<outgoing()> read, bool adds) {
    std::shared_ptr<bulk_group> group = state_of(self).bulk.open;
    auto tell = [group] {
        if (group->waiting) wake(group->waiting);
        group->waiting = nullptr;
    };
    group->unread++;
    group->unwritten++;
    put_on_list(COPY_OUT, [=] {
        outgoing what = read();
        group->unread--;
        tell();
        put_on_list(COPY_OUT, [=] {
            put_out(what, adds);
            group->unwritten--;
            tell();
        });
    });
}

/* [map, {...}], [from] */
template <bool ADDS> static void send_box(frame &f, const instruction &i) {
    struct {
        tensor_map map;
        int first[MOST_DIMENSIONS];
        block *of;
        uint32_t from;
    } c = {tensor_map_at(f.get(i, 0)), {}, nullptr, 0};
    coordinates(f, i, 0, c.map, c.first);
    c.of = block_at((uint32_t)f.get(i, 1), &c.from);
    if (ADDS && c.map.element_bytes != 4) fail("sums of elements that are not of f32");
    send_out(
        [c] {
            outgoing what;
            visit_box(c.map, c.first, c.from, [&](uint32_t place, unsigned char *device, size_t bytes) {
                unsigned char *from = place_in(c.of, place, 16);
                if (bytes) what.pieces.push_back({device, {from, from + bytes}});
            });
            return what;
        },
        ADDS);
}

/* [to], [from], bytes */
template <bool ADDS> static void send_bytes(frame &f, const instruction &i) {
    unsigned char *to = (unsigned char *)f.get(i, 0);
    uint32_t from;
    size_t bytes = (size_t)f.get(i, 2);
    block *of = block_at((uint32_t)f.get(i, 1), &from);
    if ((uintptr_t)to % 16 || from % 16 || bytes % 16) fail("a bulk copy of %zu bytes from %u to %p", bytes, from, to);
    send_out(
        [=] {
            unsigned char *place = place_in(of, from, bytes);
            return outgoing{{{to, {place, place + bytes}}}};
        },
        ADDS);
}

static void commit_sent(frame &, const instruction &) {
    bulk_groups &bulk = state_of(self).bulk;
    bulk.committed.push_back(bulk.open);
    bulk.open = std::make_shared<bulk_group>();
}

/* Until all groups but the last `left` have been read, or written. */
static void wait_for_sent(size_t left, int bulk_group::*missing) {
    bulk_groups &bulk = state_of(self).bulk;
    for (size_t n = 0; n + left < bulk.committed.size(); n++)
        while ((*bulk.committed[n]).*missing > 0) {
            bulk.committed[n]->waiting = self;
            sleep("its bulk copies");
        }
    while (!bulk.committed.empty() && !bulk.committed.front()->unwritten) bulk.committed.pop_front();
}

static void wait_until_read(frame &f, const instruction &i) {
    wait_for_sent(f.get(i, 0), &bulk_group::unread);
}

static void wait_until_written(frame &f, const instruction &i) {
    wait_for_sent(f.get(i, 0), &bulk_group::unwritten);
}

const known copy_instructions[] = {
    {"cp.async.cg.shared.global", copy_16},
    {"cp.async.ca.shared.global", copy_4},
    {"cp.async.commit_group", commit_copies},
    {"cp.async.wait_group", wait_for_groups},
    {"cp.async.wait_all", wait_for_copies},
    {"cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes", copy_box},
    {"cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes", copy_box},
    {"cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group", send_box<false>},
    {"cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group", send_box<false>},
    {"cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group", send_box<true>},
    {"cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group", send_box<true>},
    {"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", copy_to_block},
    {"cp.async.bulk.global.shared::cta.bulk_group", send_bytes<false>},
    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", send_bytes<true>},
    {"cp.async.bulk.commit_group", commit_sent},
    {"cp.async.bulk.wait_group", wait_until_written},
    {"cp.async.bulk.wait_group.read", wait_until_read},
    {NULL, NULL},
};

} // namespace ptx
} // namespace emulator
