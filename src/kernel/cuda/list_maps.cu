/* Which tensor maps the rows of a tile list need, and where in them each tile's rows are.
 *
 * A map has rows that are some stride apart, of several remainders, from row 0 of a view on: row r is row r / stride of
 * remainder r % stride. It must end with the last row that some tile uses, for nothing is known of memory behind that.
 * Where the remainders do not end together, there are two maps:
 *
 *   stride 4, rows 0 to 9 in use:      remainder 0   0 4 8 |     one map: remainders 0 and 1, 3 rows each
 *                                      remainder 1   1 5 9 |
 *                                      remainder 2   2 6   |     the other: all four, 2 rows each
 *                                      remainder 3   3 7   |
 */
#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <climits>
#include <map>

/* The rows of a part, or of a rank's queries, that are some stride apart. */
struct stride_rows {
    int64_t first, last; /* over all remainders */
    int longer, all;     /* numbers of the maps: of the remainders that have a row more, and of all; -1: not needed */
};

struct row_maps {
    std::vector<gpu_map_rows> *list;
    std::map<std::pair<int, int64_t>, stride_rows> known; /* by part and stride */

    stride_rows &rows_of(int part, const ra_span &rows) {
        return known.emplace(std::make_pair(part, rows.stride), stride_rows{rows.first, 0, -1, -1}).first->second;
    }

    /* All rows must have been used before the first is placed. */
    void use(int part, const ra_span &rows) {
        stride_rows &to = rows_of(part, rows);
        to.first = std::min(to.first, rows.first);
        to.last = std::max(to.last, ra_span_last(rows));
    }

    /* false: a number is too large. */
    bool place(int part, const ra_span &rows, gpu_row_set *set_out, int *at_out) {
        stride_rows &in = rows_of(part, rows);
        int64_t stride = rows.stride, count = (in.last + 1) / stride, over = (in.last + 1) % stride;
        int64_t remainder = rows.first % stride, at = rows.first / stride;
        bool is_longer = remainder < over;
        int &map = is_longer ? in.longer : in.all;
        if (remainder > SHRT_MAX || at > INT_MAX / 2 || list->size() > SHRT_MAX) return false;
        if (map < 0) {
            map = (int)list->size();
            list->push_back({part, stride, is_longer ? over : stride, count + is_longer});
        }
        *set_out = {(short)map, (short)remainder};
        *at_out = (int)at;
        return true;
    }

    /* Over all parts: of each, the most that have a stride, as if its remainders were one. */
    int64_t count_rows() const {
        std::map<int, int64_t> most;
        int64_t count = 0;
        for (const auto &[key, rows] : known)
            most[key.first] = std::max(most[key.first], (rows.last - rows.first) / key.second + 1);
        for (const auto &part : most) count += part.second;
        return count;
    }
};

/* Rows without a second one are of any stride. */
static ra_span queries_of(const gpu_tile &t) {
    return {t.q_first, t.q_count > 1 ? t.q_stride : 1, t.q_count};
}

static ra_span keys_of(const gpu_tile &t) {
    return {t.k_first, t.k_count > 1 ? t.k_stride : 1, t.k_count};
}

/* Nothing is copied of such a tile. */
static bool is_empty(const gpu_tile &t) {
    return t.q_count == 0 || t.k_count == 0;
}

static bool has_boxes(const gpu_tile &t) {
    return is_empty(t) || (!t.k_index && t.q_stride > 0 && t.k_stride > 0);
}

bool gpu_list_maps(gpu_lists *lists) {
    row_maps q = {&lists->maps.q, {}}, k = {&lists->maps.k, {}};
    if (!std::all_of(lists->tiles.begin(), lists->tiles.end(), has_boxes)) return false;
    for (const gpu_tile &t : lists->tiles) {
        if (is_empty(t)) continue;
        q.use(t.queries, queries_of(t));
        k.use(t.part, keys_of(t));
    }
    for (gpu_tile &t : lists->tiles) {
        if (is_empty(t)) continue;
        if (!q.place(t.queries, queries_of(t), &t.q_set, &t.q_at)) return false;
        if (!k.place(t.part, keys_of(t), &t.k_set, &t.k_at)) return false;
    }
    lists->maps.key_rows = k.count_rows();
    return true;
}
