/* What the server tells systemd: that it is ready, and that it stops. */
#include "../base/os.h"
#include "server.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_open(void) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path) return -1;
    memcpy(a.sun_path, path, strlen(path));
    if (path[0] == '@') a.sun_path[0] = '\0';
    const int fd = ln_os_socket(AF_UNIX, SOCK_DGRAM, false);
    const socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, n) == 0) return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

void notify_send(int fd, const char *state) {
    if (fd < 0) return;
    const ssize_t n = send(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
}
