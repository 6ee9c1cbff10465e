#include "base/entropy.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

ra_status ra_random_bytes(void *bytes_out, size_t count) {
    unsigned char *bytes = bytes_out;
    int source = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (source < 0) return ra_fail(RA_ERR_UNSUPPORTED, "/dev/urandom cannot be read: %s", strerror(errno));
    while (count > 0) {
        ssize_t got = read(source, bytes, count);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        bytes += got;
        count -= (size_t)got;
    }
    close(source);
    return count == 0 ? RA_OK : ra_fail(RA_ERR_UNSUPPORTED, "/dev/urandom gives no random numbers");
}
