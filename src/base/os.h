/* What differs between operating systems. os_linux.c and os_macos.c implement these functions,
 * machine_linux.c and machine_macos.c those of base.h that describe the machine. The build takes the files of
 * its system, and no other file asks which system it is compiled for. */
#ifndef LN_OS_H
#define LN_OS_H

#include "base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- threads ---- */

/* Sleeps while *word is `value`; may return early. Wakes up to n threads that sleep on the word. */
void ln_os_sleep_on(_Atomic uint32_t *word, uint32_t value);
void ln_os_wake(_Atomic uint32_t *word, int n);

/* The processor that runs the calling thread; -1 if the system does not tell. */
int ln_os_processor(void);
/* Moves the calling thread, which may run on other processors afterwards too, to one that is not among the n
 * in `taken`, and sets *now to the processor that it runs on. Returns whether it moved. */
bool ln_os_move_off(const int *taken, int n, int *now);
/* The current second of a clock that never goes back, which costs little to read. */
int64_t ln_os_second(void);

/* Initializes a condition variable for ln_os_wait_until. Returns 0 or an errno. */
int ln_os_cond_init(pthread_cond_t *c);
/* Waits for the condition variable until ln_now() is `until`. Returns false if that time has come. */
bool ln_os_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until);

/* ---- descriptors, all closed by exec ---- */

/* Opens a pipe, a socket, a pair of sockets; accepts a connection. Each returns -1 with errno set on failure.
 * Sending to a peer that has left, with MSG_NOSIGNAL, fails with EPIPE and sends no signal. */
int ln_os_pipe(int fd[2], bool nonblocking);
int ln_os_socket(int domain, int type, bool nonblocking);
int ln_os_socket_pair(int fd[2]);
int ln_os_accept(int fd, struct sockaddr *address, socklen_t *bytes, bool nonblocking);
/* Ends a connection whose peer is silent for a minute, or leaves bytes unacknowledged for so long. */
void ln_os_keep_alive(int fd, double seconds);
/* What the peer of a connection does: it may still send, has ended what it sends, or has left. */
typedef enum ln_os_peer { LN_OS_PEER_OPEN, LN_OS_PEER_ENDED, LN_OS_PEER_GONE } ln_os_peer;
ln_os_peer ln_os_peer_of(int fd);
/* Opens an event: fd[0] is readable from ln_os_event_set(fd[1]) until ln_os_event_clear(fd[0]). The two may
 * be one descriptor; ln_os_event_close closes them, and accepts -1. Returns -1 with errno set on failure. */
int ln_os_event_open(int fd[2]);
void ln_os_event_set(int fd);
void ln_os_event_clear(int fd);
void ln_os_event_close(int fd[2]);

/* ---- files ---- */

/* The time at which the content of a file was last changed. */
struct timespec ln_os_changed(const struct stat *st);
/* Brings the data of a file to the disk. Returns 0, or -1 with errno set. */
int ln_os_sync_data(int fd);
/* Whether the file is one of those that the system makes while they are read, whose size is only a guess. */
bool ln_os_size_is_guess(int fd);
/* Writes the path of the running program; "" if it is not known. */
void ln_os_program(char *path, size_t cap);

/* ---- memory ---- */

/* Bytes of a block of malloc's. */
size_t ln_os_block_bytes(const void *p);
/* Bytes in use of the C library's heap; 0 if it does not tell. */
uint64_t ln_os_heap_bytes(void);
/* Returns unused memory of the heap to the system. */
void ln_os_heap_trim(void);
/* Sets the heap to return large blocks to the system when they are freed, to grow them without a copy, and to
 * keep few heaps. */
void ln_os_heap_return_large(void);
/* Replaces whole pages by pages of zeros that cannot be written. It may be called by a signal handler. */
bool ln_os_zero_pages(uintptr_t at, size_t bytes);
/* Hints for whole pages. The first asks for large pages, the second reads the pages of a mapped file now, and
 * the third drops them. */
void ln_os_use_huge_pages(void *p, size_t bytes);
void ln_os_fetch_pages(void *p, size_t bytes);
void ln_os_drop_pages(void *p, size_t bytes);
/* Sets bit 0 of in[i] for each of the pages that is in memory. Returns false if the system does not tell. */
bool ln_os_pages_in_memory(void *at, size_t bytes, unsigned char *in);

/* ---- the machine and the process ---- */

/* The name of the processor; "" if it is not known. */
void ln_os_cpu_name(char *out, size_t cap);
/* Size of the largest cache of the first processor in bytes; 0 if it is not known. */
uint64_t ln_os_cache_bytes(void);
/* Asks the system for the registers of AMX tiles, for all threads. Returns whether it has allowed them. */
bool ln_os_allow_tiles(void);
/* In a child process before exec: ends it when its parent ends, if the system can, and closes all descriptors
 * from `first` on. Returns false if the parent has ended already. */
bool ln_os_begin_child(pid_t parent, int first);
/* Returns a descriptor that is readable once a child process has ended, and which the caller closes; -1 if
 * the system has none. */
int ln_os_watch_process(pid_t pid);

#endif
