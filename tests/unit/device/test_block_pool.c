/* Blocks that are kept: who gets which, when memory is asked for, and that all of it is released. The device is one of
 * memory alone, on which an event has happened when the test says so. */
#include "support/cmocka.h"

#include "base/status.h"
#include "device/block_pool.h"

#include <stdlib.h>

typedef struct fake {
    ra_device table; /* first: the table is the object */
    int allocations, host_allocations, alive, events;
    size_t most; /* bytes that it has memory for; 0: any number */
    int refuses_memory, refuses_events, is_lost;
} fake;

static fake *of(const ra_device *device) {
    return (fake *)device;
}

static void *allocate(const ra_device *device, size_t bytes) {
    fake *f = of(device);
    void *memory = f->refuses_memory || (f->most && bytes > f->most) ? NULL : malloc(bytes + 1);
    if (!memory) return NULL;
    f->allocations++;
    f->alive++;
    return memory;
}

static void *allocate_host(const ra_device *device, size_t bytes) {
    of(device)->host_allocations++;
    return allocate(device, bytes);
}

static void release(const ra_device *device, void *memory) {
    of(device)->alive--;
    free(memory);
}

/* An event is a number: how many times it is still to be found not done. */
static ra_status event_create(const ra_device *device, void **event_out) {
    if (of(device)->refuses_events) return ra_fail(RA_ERR_DEVICE, "no event");
    of(device)->events++;
    *event_out = calloc(1, sizeof(int));
    return RA_OK;
}

static void event_destroy(const ra_device *device, void *event) {
    of(device)->events--;
    free(event);
}

static ra_status query(const ra_device *device, void *event, int *done_out) {
    int *left = event;
    if (of(device)->is_lost) return ra_fail(RA_ERR_DEVICE, "the device is lost");
    *done_out = *left == 0;
    if (*left > 0) --*left;
    return RA_OK;
}

static fake make_fake(void) {
    return (fake){.table = {.name = "fake",
                            .allocate = allocate,
                            .release = release,
                            .allocate_host = allocate_host,
                            .release_host = release,
                            .event_create = event_create,
                            .event_destroy = event_destroy,
                            .query = query}};
}

static void keep_busy(const ra_block *block, int times) {
    *(int *)block->event = times;
}

static ra_block *take(ra_block_pool *pool, size_t bytes) {
    ra_block *block = NULL;
    assert_int_equal(ra_block_take(pool, bytes, &block), RA_OK);
    assert_true(block->bytes >= bytes);
    block->memory[0] = block->memory[bytes - 1] = 1;
    return block;
}

static void end(ra_block_pool *pool, const fake *f) {
    ra_blocks_release(pool);
    assert_int_equal(f->alive, 0);
    assert_int_equal(f->events, 0);
}

static void test_a_block_is_used_again(void **state) {
    (void)state;
    fake f = make_fake();
    for (int on_host = 0; on_host < 2; on_host++) {
        ra_block_pool pool = {&f.table, on_host, NULL};
        f.allocations = f.host_allocations = 0;
        ra_block *first = take(&pool, 1000);
        for (int i = 0; i < 5; i++) {
            ra_block_give(first);
            assert_ptr_equal(take(&pool, 1000), first);
        }
        assert_int_equal(f.allocations, 1);
        assert_int_equal(f.host_allocations, on_host);
        end(&pool, &f);
    }
}

/* Lists of another packing are a little longer or shorter. */
static void test_there_is_some_to_spare(void **state) {
    (void)state;
    fake f = make_fake();
    ra_block_pool pool = {&f.table, 0, NULL};
    ra_block *first = take(&pool, 10000000);
    ra_block_give(first);
    assert_ptr_equal(take(&pool, 15000000), first);
    assert_true(first->bytes < 16000000);
    assert_int_equal(f.allocations, 1);
    end(&pool, &f);
}

static void test_a_busy_block_is_left_alone(void **state) {
    (void)state;
    fake f = make_fake();
    ra_block_pool pool = {&f.table, 0, NULL};
    ra_block *first = take(&pool, 500), *other = take(&pool, 500);
    assert_ptr_not_equal(first, other); /* taken, and not given back */
    ra_block_give(first);
    keep_busy(first, 2);
    ra_block *third = take(&pool, 500);
    assert_ptr_not_equal(third, first);
    assert_ptr_not_equal(take(&pool, 500), first);
    assert_int_equal(f.allocations, 4);
    assert_ptr_equal(take(&pool, 500), first); /* its event has happened */
    assert_int_equal(f.allocations, 4);
    end(&pool, &f);
}

static void test_the_smallest_that_suffices(void **state) {
    (void)state;
    fake f = make_fake();
    ra_block_pool pool = {&f.table, 0, NULL};
    static const size_t sizes[] = {3000000, 1000000, 9000000};
    ra_block *blocks[3];
    for (int i = 0; i < 3; i++) blocks[i] = take(&pool, sizes[i]);
    for (int i = 0; i < 3; i++) ra_block_give(blocks[i]);
    assert_ptr_equal(take(&pool, 2000000), blocks[0]);
    assert_ptr_equal(take(&pool, 1), blocks[1]);
    assert_ptr_equal(take(&pool, 1), blocks[2]);
    ra_block_give(blocks[1]);
    take(&pool, 4000000); /* the one that is free is too small */
    assert_int_equal(f.allocations, 4);
    end(&pool, &f);
}

static void test_no_memory(void **state) {
    (void)state;
    fake f = make_fake();
    ra_block_pool pool = {&f.table, 1, NULL};
    ra_block *block = NULL;
    f.refuses_memory = 1;
    assert_int_equal(ra_block_take(&pool, 100, &block), RA_ERR_MEMORY);
    f.refuses_memory = 0;
    assert_int_equal(ra_block_take(&pool, SIZE_MAX / 2, &block), RA_ERR_MEMORY);
    f.refuses_events = 1;
    assert_int_equal(ra_block_take(&pool, 100, &block), RA_ERR_DEVICE);
    assert_null(block);
    assert_null(pool.blocks);
    end(&pool, &f);
}

/* Without any to spare, and without what is idle, there may be enough. */
static void test_little_memory(void **state) {
    (void)state;
    fake f = make_fake();
    ra_block_pool pool = {&f.table, 0, NULL};
    ra_block *idle = take(&pool, 100), *busy = take(&pool, 100);
    ra_block_give(idle);
    ra_block_give(busy);
    keep_busy(busy, 1000);
    f.most = 100000;
    assert_true(take(&pool, f.most)->bytes == f.most);
    assert_int_equal(f.alive, 2);
    assert_ptr_equal(pool.blocks->next, busy);
    end(&pool, &f);
}

static void test_a_lost_device(void **state) {
    (void)state;
    fake f = make_fake();
    ra_block_pool pool = {&f.table, 0, NULL};
    ra_block *first = take(&pool, 100), *block = NULL;
    ra_block_give(first);
    f.is_lost = 1;
    assert_int_equal(ra_block_take(&pool, 100, &block), RA_ERR_DEVICE);
    assert_null(block);
    end(&pool, &f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_is_used_again),
        cmocka_unit_test(test_there_is_some_to_spare),
        cmocka_unit_test(test_a_busy_block_is_left_alone),
        cmocka_unit_test(test_the_smallest_that_suffices),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_a_lost_device),
    };
    return cmocka_run_group_tests_name("block_pool", tests, NULL, NULL);
}
