/* Shifts the wall clock of a program by the microseconds that a shared file says.
 *
 * Loaded into a server by LD_PRELOAD. Only the wall clock is shifted: the monotonic clocks are left
 * alone, as they are when an operator or NTP sets a machine's clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *shift;

__attribute__((constructor)) static void map_shift(void) {
  const char *path = getenv("TENURE_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *page = file >= 0 ? mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  if (page == MAP_FAILED) abort();
  shift = page;
  close(file);
}

static void shifted(struct timespec *now) {
  syscall(SYS_clock_gettime, CLOCK_REALTIME, now);
  if (!shift) return;
  long long micros = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + *shift;
  now->tv_sec = micros / 1000000;
  now->tv_nsec = micros % 1000000 * 1000 + now->tv_nsec % 1000;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  shifted(&precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (clock != CLOCK_REALTIME) return syscall(SYS_clock_gettime, clock, now);
  shifted(now);
  return 0;
}

time_t time(time_t *now) {
  struct timespec precise;
  shifted(&precise);
  if (now) *now = precise.tv_sec;
  return precise.tv_sec;
}
