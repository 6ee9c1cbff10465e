/* The order in which units are taken: by sections, and the last entries behind them, every unit once; in a section the
 * entries in their order, so that long units come first. */
#include "kernel/cuda/unit_order.cuh"
#include "list_checks.h"

#include <vector>

static void check_sections(int entries, int each, int last, int section) {
    gpu_forward args = {};
    args.problem.per_entry = each;
    args.section = section;
    args.section_entries = entries - last;
    std::vector<int> seen((size_t)(entries * each));
    unsigned before = 0;
    for (unsigned n = 0; n < seen.size(); n++) {
        unsigned number = number_in_sections(args, n), entry = number / (unsigned)each;
        bool begins = n % (unsigned)((entries - last) * section) == 0 && n < (unsigned)((entries - last) * each);
        expect(number < seen.size() && seen[number]++ == 0, "a unit is taken once", n);
        expect(begins || entry >= before, "entries come in their order", n);
        expect(n < (unsigned)((entries - last) * each) || entry >= (unsigned)(entries - last), "the last entries", n);
        before = entry;
    }
}

void check_order(void) {
    for (int entries = 1; entries <= 7; entries++)
        for (int each = 1; each <= 12; each++)
            for (int last = 0; last < entries; last++)
                for (int section = 1; section <= each; section++) check_sections(entries, each, last, section);
}
