/* SPDX-License-Identifier: Apache-2.0 */
/* reducer_oracle.c - exact results of a reducer, one element at a time. */
#include "reducer_oracle.h"

#include <math.h>
#include <string.h>

/* An element: a number, for floating point types (a float32 as the double that it is), or an integer. */
struct value {
    double number;
    int64_t integer; /* uint8 and bool too */
};

size_t oracle_size(uint32_t dtype)
{
    static const size_t sizes[BPS_DTYPES] = {
        [BPS_FLOAT32] = 4, [BPS_FLOAT64] = 8, [BPS_FLOAT16] = 2,       [BPS_UINT8] = 1,
        [BPS_INT32] = 4,   [BPS_INT8] = 1,    [BPS_INT64] = 8,         [BPS_BFLOAT16] = 2,
        [BPS_INT16] = 2,   [BPS_BOOL] = 1,    [BPS_FLOAT8_E4M3FN] = 1, [BPS_FLOAT8_E5M2] = 1,
    };

    return sizes[dtype];
}

/* ---- narrow floating point, by definition ----------------------------------------------------------------
 */

struct format {
    int exponent_bits, fraction_bits;
    bool finite; /* the largest exponent has numbers, too; all ones are NaN */
};

/* No bits: the type is another one. */
static struct format format_of(uint32_t dtype)
{
    static const struct format formats[BPS_DTYPES] = {
        [BPS_FLOAT16] = {5, 10, false},
        [BPS_BFLOAT16] = {8, 7, false},
        [BPS_FLOAT8_E4M3FN] = {4, 3, true},
        [BPS_FLOAT8_E5M2] = {5, 2, false},
    };

    return formats[dtype];
}

uint32_t oracle_accumulator(uint32_t dtype)
{
    return format_of(dtype).exponent_bits > 0 ? BPS_FLOAT32 : dtype;
}

bool oracle_is_float(uint32_t dtype)
{
    return dtype == BPS_FLOAT64 || oracle_accumulator(dtype) == BPS_FLOAT32;
}

static double read_narrow(struct format f, uint16_t bits)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1, largest = (1 << f.exponent_bits) - 1;
    int exponent = bits >> f.fraction_bits & largest;
    int fraction = bits & ((1 << f.fraction_bits) - 1);
    double magnitude;

    if (exponent == largest && (!f.finite || fraction == (1 << f.fraction_bits) - 1)) {
        magnitude = fraction ? NAN : INFINITY;
    } else if (exponent == 0) {
        magnitude = ldexp(fraction, 1 - bias - f.fraction_bits);
    } else {
        magnitude = ldexp(fraction + (1 << f.fraction_bits), exponent - bias - f.fraction_bits);
    }
    return bits >> (f.exponent_bits + f.fraction_bits) ? -magnitude : magnitude;
}

/* The multiple of the last place that is nearest to number, even if two are. */
static uint16_t round_narrow(struct format f, double number)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1;
    int infinite = ((1 << f.exponent_bits) - 1) << f.fraction_bits;
    int nan = f.finite ? infinite | ((1 << f.fraction_bits) - 1) : infinite | 1 << (f.fraction_bits - 1);
    int sign = signbit(number) ? 1 << (f.exponent_bits + f.fraction_bits) : 0;
    int exponent, places;
    double whole, rest;

    if (isnan(number) || (isinf(number) && f.finite)) {
        return (uint16_t)nan;
    }
    if (isinf(number)) {
        return (uint16_t)(sign | infinite);
    }
    (void)frexp(number, &exponent);
    exponent = number == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    if (exponent > bias + 1) { /* too large, and too many places to count */
        return (uint16_t)(f.finite ? nan : sign | infinite);
    }
    rest = modf(ldexp(fabs(number), f.fraction_bits - exponent), &whole);
    places = (int)whole;
    places += rest > 0.5 || (rest == 0.5 && places % 2 == 1);
    /* The hidden bit, and a carry out of the fraction, add to the exponent. Past the largest is infinity, or
     * NaN. */
    places += (exponent + bias - 1) << f.fraction_bits;
    if (f.finite) {
        return (uint16_t)(places >= nan ? nan : sign | places);
    }
    return (uint16_t)(sign | (places > infinite ? infinite : places));
}

/* ---- elements ------------------------------------------------------------------------------------------ */

static double read_float32(const void *address)
{
    float number;

    memcpy(&number, address, sizeof number);
    return number;
}

static struct value load(uint32_t dtype, const void *address)
{
    struct value v = {0, 0};
    int8_t i8;
    int16_t i16;
    int32_t i32;
    uint16_t bits;

    switch (dtype) {
    case BPS_FLOAT32:
        v.number = read_float32(address);
        break;
    case BPS_FLOAT64:
        memcpy(&v.number, address, 8);
        break;
    case BPS_INT8:
        memcpy(&i8, address, 1);
        v.integer = i8;
        break;
    case BPS_INT16:
        memcpy(&i16, address, 2);
        v.integer = i16;
        break;
    case BPS_INT32:
        memcpy(&i32, address, 4);
        v.integer = i32;
        break;
    case BPS_INT64:
        memcpy(&v.integer, address, 8);
        break;
    case BPS_UINT8:
        v.integer = *(const uint8_t *)address;
        break;
    case BPS_BOOL:
        v.integer = *(const uint8_t *)address != 0;
        break;
    case BPS_FLOAT8_E4M3FN:
    case BPS_FLOAT8_E5M2:
        v.number = read_narrow(format_of(dtype), *(const uint8_t *)address);
        break;
    default:
        memcpy(&bits, address, 2);
        v.number = read_narrow(format_of(dtype), bits);
    }
    return v;
}

static void store_integer(size_t size, void *address, uint64_t v)
{
    const uint8_t v8 = (uint8_t)v;
    const uint16_t v16 = (uint16_t)v;
    const uint32_t v32 = (uint32_t)v;

    const void *from[9] = {[1] = &v8, [2] = &v16, [4] = &v32, [8] = &v};

    memcpy(address, from[size], size);
}

static void store(uint32_t dtype, void *address, struct value v)
{
    static const uint32_t nan32 = 0x7fc00000;
    static const uint64_t nan64 = 0x7ff8000000000000;
    float number = (float)v.number;

    switch (dtype) {
    case BPS_FLOAT32:
        memcpy(address, isnan(v.number) ? (const void *)&nan32 : &number, 4);
        break;
    case BPS_FLOAT64:
        memcpy(address, isnan(v.number) ? (const void *)&nan64 : &v.number, 8);
        break;
    case BPS_FLOAT16:
    case BPS_BFLOAT16:
    case BPS_FLOAT8_E4M3FN:
    case BPS_FLOAT8_E5M2:
        store_integer(oracle_size(dtype), address, round_narrow(format_of(dtype), v.number));
        break;
    default:
        store_integer(oracle_size(dtype), address, (uint64_t)v.integer);
    }
}

/* A result of double arithmetic, rounded to the accumulator's type. volatile: no contraction, no excess. */
static double rounded(uint32_t acc, double number)
{
    volatile double exact = number;
    volatile float narrow = (float)exact;

    return acc == BPS_FLOAT32 ? narrow : exact;
}

/* Truncated; what does not fit becomes the limit. */
static int64_t fitted(uint32_t dtype, double number)
{
    int bits = 8 * (int)oracle_size(dtype) - (dtype != BPS_UINT8);
    int64_t greatest = (int64_t)(~UINT64_C(0) >> (64 - bits)), least = dtype == BPS_UINT8 ? 0 : -greatest - 1;

    return number >= ldexp(1, bits) ? greatest : number < (double)least ? least : (int64_t)trunc(number);
}

static struct value scaled(uint32_t dtype, struct value v, double factor)
{
    uint32_t acc = oracle_accumulator(dtype);

    if (oracle_is_float(dtype)) {
        v.number = rounded(acc, v.number * rounded(acc, factor));
    } else if (dtype != BPS_BOOL && factor != 1) {
        v.integer = fitted(dtype, rounded(BPS_FLOAT64, (double)v.integer * factor));
    }
    return v;
}

static double combine_numbers(uint32_t op, uint32_t acc, double a, double b)
{
    if (op == BPS_SUM) {
        return rounded(acc, a + b);
    }
    if (op == BPS_PRODUCT) {
        return rounded(acc, a * b);
    }
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    if (a == b) {
        return (op == BPS_MIN) == (signbit(a) != 0) ? a : b; /* -0 is less than +0 */
    }
    return (op == BPS_MIN) == (a < b) ? a : b;
}

static int64_t combine_integers(uint32_t op, uint32_t dtype, int64_t a, int64_t b)
{
    if (dtype == BPS_BOOL) {
        return op == BPS_SUM || op == BPS_MAX ? a || b : a && b;
    }
    switch (op) {
    case BPS_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case BPS_PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case BPS_MIN:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

/* Rounded to minus infinity. */
static int64_t divide(int64_t value, int64_t divisor)
{
    return value / divisor - (value % divisor < 0);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

void oracle_first(uint32_t dtype, void *acc, const void *src, size_t count, double scale)
{
    uint32_t a = oracle_accumulator(dtype);

    for (size_t i = 0; i < count; i++) {
        struct value v = load(dtype, (const uint8_t *)src + i * oracle_size(dtype));

        store(a, (uint8_t *)acc + i * oracle_size(a), scaled(dtype, v, scale));
    }
}

void oracle_fold(uint32_t op, uint32_t dtype, void *acc, const void *src, size_t count, double scale)
{
    uint32_t a = oracle_accumulator(dtype);

    for (size_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)acc + i * oracle_size(a);
        struct value v = scaled(dtype, load(dtype, (const uint8_t *)src + i * oracle_size(dtype)), scale);
        struct value total = load(a, at);

        total.number = combine_numbers(op, a, total.number, v.number);
        total.integer = combine_integers(op, dtype, total.integer, v.integer);
        store(a, at, total);
    }
}

void oracle_finish(uint32_t dtype, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    uint32_t a = oracle_accumulator(dtype);

    for (size_t i = 0; i < count; i++) {
        struct value v = load(a, (const uint8_t *)acc + i * oracle_size(a));

        v = scaled(dtype, v, scale / (double)divisor);
        store(dtype, (uint8_t *)dst + i * oracle_size(dtype), v);
    }
}

/* The sum of the quotients, and the quotient of the sum of what they leave: neither is too large. */
void oracle_average(uint32_t dtype, void *dst, const void *const *src, unsigned n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = i * oracle_size(dtype);
        struct value mean = {0, 0};
        int64_t rest = 0;

        for (unsigned j = 0; j < n; j++) {
            int64_t integer = load(dtype, (const uint8_t *)src[j] + at).integer, quotient = divide(integer, n);

            mean.integer = combine_integers(BPS_SUM, dtype, mean.integer, quotient);
            rest += (int64_t)((uint64_t)integer - (uint64_t)quotient * n);
        }
        mean.integer = combine_integers(BPS_SUM, dtype, mean.integer, rest / n);
        store(dtype, (uint8_t *)dst + at, mean);
    }
}
