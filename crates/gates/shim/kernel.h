/* System calls of the shim's own, made without the C library: they neither change errno nor meet another library's
 * function of the same name. */
#ifndef PLIMSOLL_KERNEL_H
#define PLIMSOLL_KERNEL_H

#include <errno.h>
#include <stdarg.h>

#define ERRORS 4095

/* The kernel's own answer: an error is its number, negated. */
static inline long kernel(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "+a"(number)
                   : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return number;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#else
#error "the shim knows the system calls of x86-64 and aarch64"
#endif
}

#define K0(number) kernel(number, 0, 0, 0, 0, 0, 0)
#define K1(number, a) kernel(number, (long)(a), 0, 0, 0, 0, 0)
#define K2(number, a, b) kernel(number, (long)(a), (long)(b), 0, 0, 0, 0)
#define K3(number, a, b, c) kernel(number, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define K6(number, a, b, c, d, e, f) kernel(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* As the C library's functions answer: -1 and errno. */
static inline long answered(long result) {
  if (result >= 0 || result < -ERRORS) return result;
  errno = (int)-result;
  return -1;
}

/* syscall(2), where the C library's own is not to be had, or is ours. */
__attribute__((noinline, cold)) static long call_kernel(long number, ...) {
  va_list more;
  long argument[6];
  va_start(more, number);
  for (int n = 0; n < 6; n++) argument[n] = va_arg(more, long);
  va_end(more);
  return answered(kernel(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]));
}

#endif
