/* Moves the clock of a process by AOTPIPE_DAYS days: preloaded by scripts/reproduce.py.
 *
 * Clocks that tell the time of day are moved; those that measure how long something takes are not.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t moved(void) {
  const char *days = getenv("AOTPIPE_DAYS");
  return days ? (time_t)atol(days) * 24 * 60 * 60 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*next)(clockid_t, struct timespec *);
  if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int status = next(clock, now);
  if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
    now->tv_sec += moved();
  return status;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec found;
  (void)zone;
  int status = clock_gettime(CLOCK_REALTIME, &found);
  if (!status) *now = (struct timeval){found.tv_sec, found.tv_nsec / 1000};
  return status;
}

time_t time(time_t *now) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) *now = found.tv_sec;
  return found.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
  return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}
