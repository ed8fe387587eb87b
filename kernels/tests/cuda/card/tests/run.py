"""Small kernels through the real NVRTC, on the software card, against numpy.

Each case runs in a process of its own, since a kernel that fails takes its context with it.
"""

import concurrent.futures
import ctypes
import math
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np

INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS, LAUNCH_FAILED = 1, 2, 700, 719
CASES = {}


def case(function=None, **environment):
    def add(function):
        CASES[function.__name__] = (function, environment)
        return function

    return add(function) if function else add


def card(source, **options):
    from card import Card

    return Card(source, **options)


def same(found, wanted, what=""):
    found, wanted = np.asarray(found), np.asarray(wanted)
    equal = (found == wanted) | ((found != found) & (wanted != wanted))
    assert equal.all(), f"{what}: found {found[~equal][:8]}, wanted {wanted[~equal][:8]}"


def close(found, wanted, within):
    error = np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64)).max()
    assert error <= within, f"off by {error}"


EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.5, 1e-45, -1e-45, 1e-40, 1.17549435e-38, 3.4028235e38, -3.4028235e38,
     np.inf, -np.inf, np.nan, 2147483648.0, -2147483904.0, 4294967296.0, 16777217.0, 0.1, 65504.0, 65520.0, 6e-8, 3e-8, 255.5],
    np.float32)


def pairs(values):
    return np.repeat(values, len(values)), np.tile(values, len(values))


@case
def float_arithmetic():
    a, b = pairs(EDGES)
    n = len(a)
    out = np.zeros((8, n), np.float32)
    module = card(r"""extern "C" __global__ void k(float*o,const float*a,const float*b,int n){
      int i=blockIdx.x*blockDim.x+threadIdx.x; if(i>=n)return; float x=a[i],y=b[i];
      o[i]=__fadd_rn(x,y); o[n+i]=__fmul_rn(x,y); o[2*n+i]=x/y; o[3*n+i]=__fmaf_rn(x,y,0.3f); o[4*n+i]=fminf(x,y);
      o[5*n+i]=fmaxf(x,y); o[6*n+i]=sqrtf(x); o[7*n+i]=fabsf(x)-copysignf(y,x);}""")
    assert module.launch("k", (n + 127) // 128, 128, out, a, b, n) == 0
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) * b.astype(np.float64) + np.float64(np.float32(0.3))
        same(out[0], a + b, "add")
        same(out[1], a * b, "mul")
        same(out[2], a / b, "div")
        same(out[3], exact.astype(np.float32), "fma")
        same(out[4], np.fmin(a, b), "min")
        same(out[5], np.fmax(a, b), "max")
        same(out[6], np.sqrt(a), "sqrt")
        same(out[7], np.abs(a) - np.copysign(b, a), "copysign")


@case
def rounding_modes():
    a, b = np.float32([1.0, -1.0, 1e-3, 3.0]), np.float32([1e-9, 1e-9, 7.0, 7.0])
    out = np.zeros((8, 4), np.float32)
    module = card(r"""extern "C" __global__ void k(float*o,const float*a,const float*b){int i=threadIdx.x; float x=a[i],y=b[i];
      o[i]=__fadd_ru(x,y); o[4+i]=__fadd_rd(x,y); o[8+i]=__fadd_rz(x,y); o[12+i]=__fdiv_ru(x,y); o[16+i]=__fdiv_rd(x,y);
      o[20+i]=__fmul_ru(x,y); o[24+i]=__fmul_rz(x,y); o[28+i]=__fsqrt_ru(y);}""")
    assert module.launch("k", 1, 4, out, a, b) == 0
    from fractions import Fraction

    def rounded(exact, mode):
        near = np.float32(float(exact))
        value = Fraction(float(near))
        up, down = np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))
        if mode == "u":
            return near if value >= exact else up
        if mode == "d":
            return near if value <= exact else down
        return rounded(exact, "d" if exact > 0 else "u")

    x, y = [Fraction(float(v)) for v in a], [Fraction(float(v)) for v in b]
    same(out[0], [rounded(p + q, "u") for p, q in zip(x, y)])
    same(out[1], [rounded(p + q, "d") for p, q in zip(x, y)])
    same(out[2], [rounded(p + q, "z") for p, q in zip(x, y)])
    same(out[3], [rounded(p / q, "u") for p, q in zip(x, y)])
    same(out[4], [rounded(p / q, "d") for p, q in zip(x, y)])
    same(out[5], [rounded(p * q, "u") for p, q in zip(x, y)])
    same(out[6], [rounded(p * q, "z") for p, q in zip(x, y)])
    assert all(Fraction(float(r)) ** 2 >= q for r, q in zip(out[7], y))


@case
def conversions():
    a = EDGES
    n = len(a)
    ints, uints, longs = np.zeros(n, np.int32), np.zeros(n, np.uint32), np.zeros(n, np.int64)
    near, halves, brains, bytes_ = np.zeros(n, np.int32), np.zeros(n, np.uint16), np.zeros(n, np.uint16), np.zeros(n, np.int32)
    module = card(r"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(int*i,unsigned*u,long long*l,int*r,unsigned short*h,unsigned short*b,int*c,const float*a,int n){
      int t=threadIdx.x; if(t>=n)return; float x=a[t]; i[t]=(int)x; u[t]=(unsigned)x; l[t]=(long long)x; r[t]=__float2int_rn(x);
      h[t]=__half_as_ushort(__float2half_rn(x)); b[t]=__bfloat16_as_ushort(__float2bfloat16_rn(x)); c[t]=(signed char)(int)x;}""")
    assert module.launch("k", 1, 32, ints, uints, longs, near, halves, brains, bytes_, a, n) == 0
    clean = np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
    whole = np.trunc(clean)
    same(ints, np.clip(whole, -(2**31), 2**31 - 1).astype(np.int64).astype(np.int32), "int")
    same(uints, np.clip(whole, 0, 2**32 - 1).astype(np.uint64).astype(np.uint32), "unsigned")
    finite = np.abs(whole) < 2**62
    same(longs[finite & (a == a)], whole[finite & (a == a)].astype(np.int64), "long")
    same(near, np.clip(np.rint(clean), -(2**31), 2**31 - 1).astype(np.int64).astype(np.int32), "rn")
    with np.errstate(all="ignore"):
        number = a == a
        same(halves[number], a[number].astype(np.float16).view(np.uint16), "half")
        bits = a[number].view(np.uint32).astype(np.uint64)
        same(brains[number], ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16), "bfloat16")
    assert (halves[~number] == 0x7FFF).all() and (brains[~number] == 0x7FFF).all()
    same(bytes_, ints.astype(np.int8).astype(np.int32), "char")


@case
def all_halves():
    bits = np.arange(65536, dtype=np.uint16)
    out, back = np.zeros(65536, np.float32), np.zeros(65536, np.uint16)
    module = card(r"""#include <cuda_fp16.h>
    extern "C" __global__ void k(float*o,unsigned short*b,const unsigned short*h){int i=blockIdx.x*256+threadIdx.x;
      float x=__half2float(__ushort_as_half(h[i])); o[i]=x; b[i]=__half_as_ushort(__float2half(x));}""")
    assert module.launch("k", 256, 256, out, back, bits) == 0
    same(out, bits.view(np.float16).astype(np.float32))
    number = out == out
    same(back[number], bits[number])


def fused(x, y, z):
    """numpy rounds twice."""
    from fractions import Fraction

    found = (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(np.float16)
    for at in np.flatnonzero(np.isfinite(found)):
        exact = Fraction(float(x[at])) * Fraction(float(y[at])) + Fraction(float(z[at]))
        near = [found[at], np.nextafter(found[at], np.float16(np.inf)), np.nextafter(found[at], np.float16(-np.inf))]
        near = [one for one in near if np.isfinite(one)]
        found[at] = min(near, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint16)) & 1))
    return found


@case
def half_arithmetic():
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(0, 65536, 4096, dtype=np.uint16) for _ in range(3))
    x, y, z = (v.view(np.float16) for v in (a, b, c))
    out = np.zeros((5, 4096), np.uint16)
    module = card(r"""#include <cuda_fp16.h>
    extern "C" __global__ void k(__half*o,const __half*a,const __half*b,const __half*c,int n){int i=2*(blockIdx.x*256+threadIdx.x);
      __half2 x=*(const __half2*)(a+i),y=*(const __half2*)(b+i),z=*(const __half2*)(c+i);
      *(__half2*)(o+i)=__hadd2(x,y); *(__half2*)(o+n+i)=__hmul2(x,y); *(__half2*)(o+2*n+i)=__hfma2(x,y,z);
      *(__half2*)(o+3*n+i)=__hmax2(x,y); o[4*n+i]=__hlt(x.x,y.x)?__half(1.f):__half(0.f); o[4*n+i+1]=__hlt(x.y,y.y)?__half(1.f):__half(0.f);}""")
    assert module.launch("k", 8, 256, out, a, b, c, 4096) == 0
    with np.errstate(all="ignore"):
        same(out[0].view(np.float16), x + y, "add")
        same(out[1].view(np.float16), x * y, "mul")
        same(out[2].view(np.float16), fused(x, y, z), "fma")
        same(out[3].view(np.float16), np.fmax(x, y), "max")
        same(out[4].view(np.float16), (x < y).astype(np.float16), "lt")


@case
def bfloat_arithmetic():
    rng = np.random.default_rng(2)
    a, b, c = (rng.normal(size=1024).astype(np.float32) for _ in range(3))

    def brain(v):
        bits = np.asarray(v, np.float32).view(np.uint32).astype(np.uint64)
        return (((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint32) << 16).view(np.float32)

    out = np.zeros((3, 1024), np.float32)
    module = card(r"""#include <cuda_bf16.h>
    extern "C" __global__ void k(float*o,const float*a,const float*b,const float*c,int n){int i=blockIdx.x*256+threadIdx.x;
      __nv_bfloat16 x=__float2bfloat16(a[i]),y=__float2bfloat16(b[i]),z=__float2bfloat16(c[i]);
      o[i]=__bfloat162float(__hadd(x,y)); o[n+i]=__bfloat162float(__hmul(x,y)); o[2*n+i]=__bfloat162float(__hfma(x,y,z));}""")
    assert module.launch("k", 4, 256, out, a, b, c, 1024) == 0
    x, y, z = brain(a), brain(b), brain(c)
    same(out[0], brain(x + y), "add")
    same(out[1], brain(x * y), "mul")
    # A sum of doubles is exact here but for the last bits, which do not meet a tie of eight bits.
    exact = x.astype(np.float64) * y + z
    bits = exact.view(np.uint64)
    rounded = ((bits + (1 << 44) - 1 + (bits >> 45 & 1)) >> 45 << 45).view(np.float64)
    same(out[2], rounded.astype(np.float32), "fma")


@case
def integers():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2**32, 1024, dtype=np.uint32)
    b = rng.integers(1, 2**32, 1024, dtype=np.uint32) >> rng.integers(0, 31, 1024, dtype=np.uint32)
    b = np.maximum(b, 1)
    names = ["a+b", "a*b", "a/b", "a%b", "a/7u", "a%10u", "(unsigned)((int)a/7)", "(unsigned)((int)a%-13)", "__umulhi(a,b)",
             "(unsigned)__mulhi((int)a,(int)b)", "__popc(a)", "__clz(a)", "__brev(a)", "__ffs(a)", "a<<(b&31)", "a>>(b&31)",
             "(unsigned)((int)a>>(b&31))", "__byte_perm(a,b,0x7531)", "__funnelshift_l(a,b,b&31)", "min((int)a,(int)b)", "a&b^~a|b",
             "__usad(a,b,3u)", "__vadd4(a,b)"]
    out = np.zeros((len(names), 1024), np.uint32)
    lines = "".join(f"o[{at}*1024+i]={name};" for at, name in enumerate(names))
    module = card(r'extern "C" __global__ void k(unsigned*o,const unsigned*x,const unsigned*y){int i=blockIdx.x*256+threadIdx.x;'
                  "unsigned a=x[i],b=y[i];" + lines + "}")
    assert module.launch("k", 4, 256, out, a, b) == 0
    A, B = [int(v) for v in a], [int(v) for v in b]
    signed = lambda v: v - 2**32 if v >= 2**31 else v
    quotient = lambda p, q: int(math.trunc(p / q)) if abs(p) < 2**52 else p // q
    truncated = lambda p, q: abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
    M = 2**32 - 1
    wanted = [
        lambda p, q: p + q, lambda p, q: p * q, lambda p, q: p // q, lambda p, q: p % q, lambda p, q: p // 7, lambda p, q: p % 10,
        lambda p, q: truncated(signed(p), 7), lambda p, q: signed(p) - truncated(signed(p), -13) * -13, lambda p, q: p * q >> 32,
        lambda p, q: signed(p) * signed(q) >> 32, lambda p, q: bin(p).count("1"), lambda p, q: 32 - p.bit_length(),
        lambda p, q: int(f"{p:032b}"[::-1], 2), lambda p, q: (p & -p).bit_length(), lambda p, q: p << (q & 31),
        lambda p, q: p >> (q & 31), lambda p, q: signed(p) >> (q & 31),
        lambda p, q: int.from_bytes(bytes((p.to_bytes(4, "little") + q.to_bytes(4, "little"))[k] for k in (1, 3, 5, 7)), "little"),
        lambda p, q: ((q << 32 | p) << (q & 31)) >> 32, lambda p, q: min(signed(p), signed(q)), lambda p, q: p & q ^ ~p | q,
        lambda p, q: abs(p - q) + 3,
        lambda p, q: sum(((p >> s & 255) + (q >> s & 255) & 255) << s for s in (0, 8, 16, 24)),
    ]
    for at, rule in enumerate(wanted):
        same(out[at], np.array([rule(p, q) & M for p, q in zip(A, B)], np.uint32), names[at])


@case
def long_integers():
    rng = np.random.default_rng(4)
    a = rng.integers(0, 2**64, 512, dtype=np.uint64)
    b = np.maximum(rng.integers(0, 2**64, 512, dtype=np.uint64) >> rng.integers(0, 60, 512, dtype=np.uint64), 1)
    names = ["a+b", "a*b", "a/b", "a%b", "__umul64hi(a,b)", "(unsigned long long)((long long)a/1000003)", "a<<(b&63)",
             "__popcll(a)", "__clzll(a)", "__brevll(a)", "(unsigned long long)((long long)a>>(b&63))", "a>b?a:b"]
    out = np.zeros((len(names), 512), np.uint64)
    lines = "".join(f"o[{at}*512+i]={name};" for at, name in enumerate(names))
    module = card(r'extern "C" __global__ void k(unsigned long long*o,const unsigned long long*x,const unsigned long long*y){'
                  "int i=blockIdx.x*256+threadIdx.x; unsigned long long a=x[i],b=y[i];" + lines + "}")
    assert module.launch("k", 2, 256, out, a, b) == 0
    signed = lambda v: v - 2**64 if v >= 2**63 else v
    truncated = lambda p, q: abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
    wanted = [lambda p, q: p + q, lambda p, q: p * q, lambda p, q: p // q, lambda p, q: p % q, lambda p, q: p * q >> 64,
              lambda p, q: truncated(signed(p), 1000003), lambda p, q: p << (q & 63), lambda p, q: bin(p).count("1"),
              lambda p, q: 64 - p.bit_length(), lambda p, q: int(f"{p:064b}"[::-1], 2), lambda p, q: signed(p) >> (q & 63), max]
    for at, rule in enumerate(wanted):
        same(out[at], np.array([rule(int(p), int(q)) % 2**64 for p, q in zip(a, b)], np.uint64), names[at])


@case
def small_integers():
    a = np.arange(-128, 128, dtype=np.int8)
    out, shorts = np.zeros(256, np.int32), np.zeros(256, np.int16)
    module = card(r"""extern "C" __global__ void k(int*o,short*s,const signed char*a,const unsigned char*b){int i=threadIdx.x;
      short x=a[i]; unsigned char y=b[i]; o[i]=x*3+y; s[i]=(short)(x*y)>>1;}""")
    assert module.launch("k", 1, 256, out, shorts, a, a.view(np.uint8)) == 0
    same(out, a.astype(np.int32) * 3 + a.view(np.uint8))
    same(shorts, (a.astype(np.int32) * a.view(np.uint8)).astype(np.int16) >> 1)


@case
def special_functions():
    x = np.linspace(0.01, 20, 4096).astype(np.float32)
    names = ["__expf(-x)", "__logf(x)", "rsqrtf(x)", "sinf(x*50)", "cosf(x)", "tanhf(x-5)", "expf(x)", "powf(x,1.7f)", "erff(x)", "logf(x)",
             "__fdividef(1.f,x)", "exp2f(x)", "log1pf(x)", "__frcp_rn(x)"]
    out = np.zeros((len(names), 4096), np.float32)
    lines = "".join(f"o[{at}*4096+i]={name};" for at, name in enumerate(names))
    module = card(r'extern "C" __global__ void k(float*o,const float*a){int i=blockIdx.x*256+threadIdx.x; float x=a[i];' + lines + "}")
    assert module.launch("k", 16, 256, out, x) == 0
    d = x.astype(np.float64)
    big = (x * np.float32(50)).astype(np.float64)
    wanted = [np.exp(-d), np.log(d), d**-0.5, np.sin(big), np.cos(d), np.tanh((x - np.float32(5)).astype(np.float64)), np.exp(d), d ** np.float64(np.float32(1.7)),
              np.array([math.erf(v) for v in d]), np.log(d), 1 / d, 2**d, np.log1p(d), 1 / d]
    for name, found, value in zip(names, out, wanted):
        error = (np.abs(found - value) / np.maximum(np.abs(value), 1e-1)).max()
        assert error < 4e-6, f"{name} is off by {error}"


@case
def doubles():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=512) * 100, rng.normal(size=512)
    out = np.zeros((6, 512))
    module = card(r"""extern "C" __global__ void k(double*o,const double*a,const double*b){int i=blockIdx.x*256+threadIdx.x; double x=a[i],y=b[i];
      o[i]=x/y; o[512+i]=sqrt(fabs(x)); o[1024+i]=exp(y); o[1536+i]=sin(x*1e6); o[2048+i]=fma(x,y,1.0); o[2560+i]=(double)(float)x;}""")
    assert module.launch("k", 2, 256, out, a, b) == 0
    same(out[0], a / b)
    same(out[1], np.sqrt(np.abs(a)))
    close(out[2] / np.exp(b), 1, 1e-15)
    close(out[3], np.sin(a * 1e6), 1e-15)
    close(out[4], a * b + 1, 1e-13)
    same(out[5], a.astype(np.float32))


@case
def divergence():
    out = np.zeros(256, np.int32)
    module = card(r"""extern "C" __global__ void k(int*o){int i=threadIdx.x, s=0;
      for(int t=0;t<i%13;t++){ if((t+i)&1){ s+=t*i; if(s%7==3) continue; s^=5; } else { int k=t; while(k>0){ s+=k; k-=2; if(s%11==0) break; } } }
      switch(i%6){case 0: s+=1; case 1: s+=2; break; case 2: s*=3; break; case 3: s=-s; break; case 4: if(i>100) break; s=9; break; default: return;}
      o[i]=s;}""")
    assert module.launch("k", 1, 256, out) == 0

    def one(i):
        s = 0
        for t in range(i % 13):
            if (t + i) & 1:
                s += t * i
                if math.fmod(s, 7) == 3:
                    continue
                s ^= 5
            else:
                k = t
                while k > 0:
                    s += k
                    k -= 2
                    if s % 11 == 0:
                        break
        which = i % 6
        if which == 0:
            s += 3
        elif which == 1:
            s += 2
        elif which == 2:
            s *= 3
        elif which == 3:
            s = -s
        elif which == 4:
            s = s if i > 100 else 9
        else:
            return 0
        return s

    same(out, [one(i) for i in range(256)])


@case
def functions_and_local_memory():
    out = np.zeros(64, np.float32)
    module = card(r"""struct P{float v[6]; int n;};
      __device__ __noinline__ float sum(P p,int from){float s=0; for(int i=from;i<p.n;i++) s+=p.v[i]; return s;}
      __device__ __noinline__ void fill(float*v,int n){for(int i=0;i<n;i++) v[i]=i*i+threadIdx.x;}
      extern "C" __global__ void k(float*o,P q){int t=threadIdx.x; P p; p.n=2+t%5; float v[8]; fill(v,8);
        for(int i=0;i<6;i++) p.v[i]=v[(i+t)%8]; o[t]=sum(p,t%2)+sum(q,1);}""")
    import ctypes

    class P(ctypes.Structure):
        _fields_ = [("v", ctypes.c_float * 6), ("n", ctypes.c_int)]

    q = P((ctypes.c_float * 6)(1, 2, 3, 4, 5, 6), 5)
    assert module.launch("k", 1, 64, out, q) == 0
    wanted = []
    for t in range(64):
        v = [i * i + t for i in range(8)]
        wanted.append(sum(v[(i + t) % 8] for i in range(t % 2, 2 + t % 5)) + 2 + 3 + 4 + 5)
    same(out, np.array(wanted, np.float32))


@case
def shuffles():
    out = np.zeros((6, 32), np.int32)
    module = card(r"""extern "C" __global__ void k(int*o){int i=threadIdx.x,v=i*i; unsigned all=~0u;
      o[i]=__shfl_sync(all,v,(i+5)&31); o[32+i]=__shfl_up_sync(all,v,3); o[64+i]=__shfl_down_sync(all,v,7,16);
      o[96+i]=__shfl_xor_sync(all,v,9); o[128+i]=__shfl_sync(all,v,3,8); o[160+i]=__shfl_xor_sync(all,v,4,8);}""")
    assert module.launch("k", 1, 32, out) == 0
    i = np.arange(32)
    v = i * i
    same(out[0], v[(i + 5) & 31])
    same(out[1], np.where(i >= 3, v[i - 3], v))
    same(out[2], np.where(i % 16 + 7 < 16, v[np.minimum(i + 7, 31)], v))
    same(out[3], v[i ^ 9])
    same(out[4], v[i // 8 * 8 + 3])
    same(out[5], v[i ^ 4])


@case
def votes_and_matches():
    out = np.zeros((7, 64), np.uint32)
    module = card(r"""extern "C" __global__ void k(unsigned*o){int i=threadIdx.x; unsigned all=~0u;
      o[i]=__ballot_sync(all,i%3==0); o[64+i]=__any_sync(all,i==40); o[128+i]=__all_sync(all,i<32); o[192+i]=__match_any_sync(all,i%4);
      o[256+i]=__reduce_add_sync(all,i); o[320+i]=__reduce_max_sync(all,(i*7)%32); if(i&1) o[384+i]=__activemask();}""")
    assert module.launch("k", 1, 64, out) == 0
    i = np.arange(64)
    ballot = [sum(1 << l for l in range(32) if (w * 32 + l) % 3 == 0) for w in range(2)]
    same(out[0], np.array(ballot, np.uint32)[i // 32])
    same(out[1], i // 32)
    same(out[2], 1 - i // 32)
    same(out[3], np.array([sum(1 << l for l in range(32) if l % 4 == t % 4) for t in i], np.uint32))
    same(out[4], np.array([496, 1520])[i // 32])
    same(out[5], np.full(64, 31))
    same(out[6][1::2], np.full(32, 0xAAAAAAAA, np.uint32))


@case
def partial_members():
    """Lanes of two branches shuffle among themselves, and meet others that a mask names."""
    out = np.zeros(32, np.int32)
    module = card(r"""extern "C" __global__ void k(int*o){int i=threadIdx.x,r;
      if(i<12) r=__shfl_sync(0xfffu,i*10,11-i); else { r=__shfl_xor_sync(0xfffff000u,i,3); if(i>20) r+=100; __syncwarp(0xfffff000u); }
      o[i]=r+__shfl_sync(~0u,i,31);}""")
    assert module.launch("k", 1, 32, out) == 0
    same(out, [((11 - i) * 10 if i < 12 else (i ^ 3) + (100 if i > 20 else 0)) + 31 for i in range(32)])


@case
def shared_reduction():
    x = np.random.default_rng(6).normal(size=10 * 256).astype(np.float32)
    out = np.zeros(10, np.float32)
    module = card(r"""extern "C" __global__ void k(float*o,const float*a){extern __shared__ float s[]; int t=threadIdx.x; s[t]=a[blockIdx.x*256+t];
      __syncthreads(); for(int h=128;h>0;h>>=1){ if(t<h) s[t]+=s[t+h]; __syncthreads(); } if(t==0) o[blockIdx.x]=s[0];}""")
    assert module.launch("k", 10, 256, out, x, shared=1024) == 0
    close(out, x.reshape(10, 256).astype(np.float64).sum(1), 1e-4)


@case
def barriers_that_reduce():
    out = np.zeros(96, np.int32)
    module = card(r"""extern "C" __global__ void k(int*o){int i=threadIdx.x; int a=__syncthreads_count(i%5==0),b=__syncthreads_or(i==90),c=__syncthreads_and(i<90);
      o[i]=a*100+b*10+c;}""")
    assert module.launch("k", 1, 96, out) == 0
    same(out, np.full(96, 20 * 100 + 10))


@case
def atomics():
    ints, floats, doubles_ = np.zeros(8, np.int32), np.zeros(2, np.float32), np.zeros(1)
    halves = np.zeros(2, np.float16)
    ints[4] = 1000
    module = card(r"""#include <cuda_fp16.h>
    extern "C" __global__ void k(int*o,float*f,double*d,__half2*h){int i=blockIdx.x*blockDim.x+threadIdx.x;
      atomicAdd(o,i); atomicMax(o+1,i); atomicOr(o+2,1<<(i&15)); atomicXor(o+3,i); atomicMin(o+4,i-5); atomicInc((unsigned*)o+5,9);
      int old=o[6],seen; do{ seen=old; old=atomicCAS(o+6,seen,seen+2);}while(old!=seen); atomicExch(o+7,7);
      atomicAdd(f,0.5f); atomicAdd(d,0.25); atomicAdd(h,__floats2half2_rn(1.f,2.f)); __shared__ float s; if(threadIdx.x==0) s=0; __syncthreads();
      atomicAdd(&s,1.f); __syncthreads(); if(threadIdx.x==0) atomicAdd(f+1,s);}""")
    assert module.launch("k", 4, 64, ints, floats, doubles_, halves) == 0
    same(ints, [255 * 128, 255, 0xFFFF, np.bitwise_xor.reduce(np.arange(256)), -5, 256 % 10, 512, 7])
    same(floats, [128, 256])
    same(doubles_, [64])
    same(halves, [256, 512])


@case
def vectors_and_constants():
    x = np.arange(256, dtype=np.float32)
    out = np.zeros(256, np.float32)
    module = card(r"""__constant__ float scale[4]={1.f,2.f,3.f,-4.f}; __device__ int counter=5;
      extern "C" __global__ void k(float4*o,const float4*a){int i=threadIdx.x; float4 v=a[i]; float s=scale[i&3];
      if(i==0) counter++; o[i]=make_float4(v.x*s,v.y*s,v.z*s,v.w*s+counter*0);}""")
    assert module.launch("k", 1, 64, out, x) == 0
    same(out, x * np.repeat(np.float32([1, 2, 3, -4])[np.arange(64) & 3], 4))


def wmma_source(a, b, c, m, n, k, layout_a, layout_b, precision=None):
    kind = {"half": "__half", "bf16": "__nv_bfloat16", "tf32": "wmma::precision::tf32", "s8": "signed char"}[a]
    memory = {"half": "__half", "bf16": "__nv_bfloat16", "tf32": "float", "s8": "signed char"}[a]
    return f"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    #include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k({c}*d,const {memory}*a,const {memory}*b,int lda,int ldb,int ldd){{
      extern __shared__ char raw[]; {memory}*sa=({memory}*)raw; for(int i=threadIdx.x;i<{m * k * 2};i+=32) sa[i]=a[i]; __syncthreads();
      wmma::fragment<wmma::matrix_a,{m},{n},{k},{kind},wmma::{layout_a}> x; wmma::fragment<wmma::matrix_b,{m},{n},{k},{kind},wmma::{layout_b}> y;
      wmma::fragment<wmma::accumulator,{m},{n},{k},{c}> z; wmma::fill_fragment(z,({c})1); wmma::load_matrix_sync(x,sa,lda); wmma::load_matrix_sync(y,b,ldb);
      wmma::mma_sync(z,x,y,z); for(int i=0;i<z.num_elements;i++) z.x[i]=z.x[i]*({c})2; wmma::store_matrix_sync(d,z,ldd,wmma::mem_row_major);}}"""


def wmma(a, c, m, n, k, layout_a="row_major", layout_b="row_major"):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    if a == "s8":
        x, y = np.clip(np.round(x * 40), -128, 127), np.clip(np.round(y * 40), -128, 127)

    def stored(v):
        if a == "half":
            return v.astype(np.float16)
        if a == "bf16":
            return (v.view(np.uint32) >> 16).astype(np.uint16)
        return v.astype(np.int8) if a == "s8" else v

    def meant(v):
        if a == "half":
            return v.astype(np.float16).astype(np.float64)
        if a == "bf16":
            return (v.view(np.uint32) >> 16 << 16).view(np.float32).astype(np.float64)
        if a == "tf32":
            return (v.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
        return v.astype(np.float64)

    def place(v, layout, pad):
        v = v if layout == "row_major" else v.T
        padded = np.zeros((v.shape[0], v.shape[1] + pad), np.float32)
        padded[:, : v.shape[1]] = v
        return np.ascontiguousarray(stored(np.ascontiguousarray(padded))), padded.shape[1]

    left, lda = place(x, layout_a, 0)
    right, ldb = place(y, layout_b, 16)
    left = np.concatenate([left.ravel(), np.zeros(m * k, left.dtype)])
    out = np.zeros((m, n + 8), {"float": np.float32, "__half": np.float16, "int": np.int32}[c])
    module = card(wmma_source(a, a, c, m, n, k, layout_a, layout_b))
    assert module.launch("k", 1, 32, out, left, right, lda, ldb, n + 8, shared=m * k * 2 * 4) == 0
    wanted = 2 * (meant(x) @ meant(y) + 1)
    close(out[:, :n], wanted, {"float": 1e-4, "__half": 6e-2, "int": 0}[c])
    assert (out[:, n:] == 0).all()


for shape in ((16, 16, 16), (8, 32, 16), (32, 8, 16)):
    for kind, sum_ in (("half", "float"), ("half", "__half"), ("bf16", "float"), ("s8", "int")):
        def run(kind=kind, sum_=sum_, shape=shape):
            wmma(kind, sum_, *shape, "row_major", "col_major")
            wmma(kind, sum_, *shape, "col_major", "row_major")

        run.__name__ = f"wmma_{kind}_{sum_.strip('_')}_{'x'.join(map(str, shape))}"
        case(run)


@case
def wmma_tf32():
    wmma("tf32", "float", 16, 16, 8, "row_major", "col_major")
    wmma("tf32", "float", 16, 16, 8, "col_major", "row_major")


@case
def mma_sync_half():
    """By the layouts of the PTX ISA, and by ldmatrix."""
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(16, 16)).astype(np.float16), rng.normal(size=(16, 8)).astype(np.float16)
    out, second = np.zeros((16, 8), np.float32), np.zeros((16, 8), np.float32)
    module = card(r"""#include <cuda_fp16.h>
    extern "C" __global__ void k(float*o,float*p,const unsigned short*a,const unsigned short*b){int l=threadIdx.x,g=l/4,t=l%4; unsigned A[4],B[2]; float C[4]={0,0,0,0};
      auto pa=[&](int r,int c){return (unsigned)a[r*16+c]|(unsigned)a[r*16+c+1]<<16;}; auto pb=[&](int r){return (unsigned)b[r*8+g]|(unsigned)b[(r+1)*8+g]<<16;};
      A[0]=pa(g,2*t);A[1]=pa(g+8,2*t);A[2]=pa(g,2*t+8);A[3]=pa(g+8,2*t+8);B[0]=pb(2*t);B[1]=pb(2*t+8);
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};":"+f"(C[0]),"+f"(C[1]),"+f"(C[2]),"+f"(C[3]):"r"(A[0]),"r"(A[1]),"r"(A[2]),"r"(A[3]),"r"(B[0]),"r"(B[1]));
      o[g*8+2*t]=C[0];o[g*8+2*t+1]=C[1];o[(g+8)*8+2*t]=C[2];o[(g+8)*8+2*t+1]=C[3];
      __shared__ __align__(16) unsigned short sa[256],sb[128]; for(int i=l;i<256;i+=32) sa[i]=a[i]; for(int i=l;i<128;i+=32) sb[i]=b[i]; __syncwarp();
      unsigned pA=(unsigned)__cvta_generic_to_shared(sa+(l%16)*16+(l/16)*8),pB=(unsigned)__cvta_generic_to_shared(sb+(l%16)*8);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];":"=r"(A[0]),"=r"(A[1]),"=r"(A[2]),"=r"(A[3]):"r"(pA));
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];":"=r"(B[0]),"=r"(B[1]):"r"(pB));
      C[0]=C[1]=C[2]=C[3]=0;
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};":"+f"(C[0]),"+f"(C[1]),"+f"(C[2]),"+f"(C[3]):"r"(A[0]),"r"(A[1]),"r"(A[2]),"r"(A[3]),"r"(B[0]),"r"(B[1]));
      p[g*8+2*t]=C[0];p[g*8+2*t+1]=C[1];p[(g+8)*8+2*t]=C[2];p[(g+8)*8+2*t+1]=C[3];}""")
    assert module.launch("k", 1, 32, out, second, a.view(np.uint16), b.view(np.uint16)) == 0
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    close(out, wanted, 1e-4)
    close(second, wanted, 1e-4)


@case
def mma_sync_tf32():
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(8, 8)).astype(np.float32)
    out = np.zeros((16, 8), np.float32)
    module = card(r"""extern "C" __global__ void k(float*o,const unsigned*a,const unsigned*b){int l=threadIdx.x,g=l/4,t=l%4; float C[4]={0,0,0,0};
      unsigned A0=a[g*8+t],A1=a[(g+8)*8+t],A2=a[g*8+t+4],A3=a[(g+8)*8+t+4],B0=b[t*8+g],B1=b[(t+4)*8+g];
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};":"+f"(C[0]),"+f"(C[1]),"+f"(C[2]),"+f"(C[3]):"r"(A0),"r"(A1),"r"(A2),"r"(A3),"r"(B0),"r"(B1));
      o[g*8+2*t]=C[0];o[g*8+2*t+1]=C[1];o[(g+8)*8+2*t]=C[2];o[(g+8)*8+2*t+1]=C[3];}""")
    assert module.launch("k", 1, 32, out, a, b) == 0
    cut = lambda v: (v.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    close(out, cut(a) @ cut(b), 1e-5)


ASYNC = r"""extern "C" __global__ void k(float*o,const float*a){__shared__ __align__(16) float s[512]; int t=threadIdx.x;
      unsigned to=(unsigned)__cvta_generic_to_shared(s+4*t);
      asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(to),"l"(a+4*t)); asm volatile("cp.async.commit_group;");
      asm volatile("cp.async.ca.shared.global [%0],[%1],4,%2;"::"r"(to+1024),"l"(a+t),"r"(t<30?4:0)); asm volatile("cp.async.commit_group;");
      WAIT __syncthreads(); o[t]=s[4*t+3]; asm volatile("cp.async.wait_all;"); __syncthreads(); o[64+t]=s[256+4*t];}"""


@case
def barriers_in_memory():
    """`mbarrier` and a bulk copy that completes on one."""
    a = np.arange(768, dtype=np.float32)
    out = np.zeros(768, np.float32)
    module = card(r"""__device__ void wait(unsigned b,unsigned parity){ asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra DONE; bra AGAIN; DONE: }"::"r"(b),"r"(parity)); }
      extern "C" __global__ void k(float*o,const float*a){__shared__ __align__(128) float s[256]; __shared__ unsigned long long word; unsigned b=(unsigned)__cvta_generic_to_shared(&word),d=(unsigned)__cvta_generic_to_shared(s);
      int t=threadIdx.x; if(t==0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"::"r"(b),"r"(256)); __syncthreads();
      for(int r=0;r<3;r++){ unsigned long long state;
        if(t==7){ asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;":"=l"(state):"r"(b),"r"(1024));
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"::"r"(d),"l"(a+256*r),"r"(1024),"r"(b):"memory"); }
        else asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];":"=l"(state):"r"(b));
        wait(b,r&1); o[256*r+t]=s[255-t]; __syncthreads(); } }""")
    assert module.launch("k", 1, 256, out, a) == 0
    same(out.reshape(3, 256)[:, ::-1].ravel(), a)


@case
def asynchronous_copies():
    a = np.arange(256, dtype=np.float32)
    out = np.zeros(128, np.float32)
    module = card(ASYNC.replace("WAIT", 'asm volatile("cp.async.wait_group 1;");'))
    assert module.launch("k", 1, 64, out, a) == 0
    same(out[:64], a[3::4])
    same(out[64:], np.where(np.arange(64) < 30, a[:64], 0))


@case
def a_missing_wait_shows():
    a = np.arange(256, dtype=np.float32)
    out = np.zeros(128, np.float32)
    module = card(ASYNC.replace("WAIT", ""))
    assert module.launch("k", 1, 64, out, a) == 0
    assert (out[:64] == 0).all()


def fails(source, status, words, arguments, block=32, grid=1, shared=0):
    """The kernel ends with the status, and the report has the words."""
    module = card(source)
    read, write = os.pipe()
    kept = os.dup(2)
    os.dup2(write, 2)
    found = module.launch("k", grid, block, *arguments, shared=shared)
    os.dup2(kept, 2)
    os.close(write)
    report = os.read(read, 1 << 16).decode()
    assert found == status, f"status {found}: {report}"
    for word in words:
        assert word in report, f"{word!r} is not in: {report}"
    return module


@case
def out_of_bounds():
    module = fails(r'extern "C" __global__ void k(float*o,int n){ o[threadIdx.x+n]=1; }', 700,
          ["kernel k", "st.global", "thread (4, 0, 0)", "0 bytes past the end of allocation", "of 512 bytes"],
          [np.zeros(128, np.float32), 124])
    from card import driver
    assert driver.cuCtxSynchronize() == 700, "the context is not lost"


@case
def before_the_start():
    fails(r'extern "C" __global__ void k(float*o){ o[0]=o[-(int)threadIdx.x]; }', 700, ["4 bytes before allocation", "ld.global"], [np.zeros(8, np.float32)])


@case
def misaligned():
    fails(r'extern "C" __global__ void k(float*o){ float4 v=*(float4*)(o+1); o[0]=v.x+v.y+v.z+v.w; }', 716, ["misaligned access of 16 bytes", "ld.global"], [np.zeros(64, np.float32)])


@case
def outside_shared():
    fails(r'extern "C" __global__ void k(float*o){ extern __shared__ float s[]; s[threadIdx.x*2]=1; __syncthreads(); o[0]=s[0]; }', 700,
          ["shared memory, which has 128 bytes"], [np.zeros(64, np.float32)], shared=128)


@case
def null_pointer():
    import ctypes
    fails(r'extern "C" __global__ void k(float*o){ o[threadIdx.x]=1; }', 700, ["no allocation is near"], [ctypes.c_uint64(0)])


@case
def refused_launches():
    module = card(r'extern "C" __global__ void k(float*o){ }')
    out = np.zeros(4, np.float32)
    assert module.launch("k", 0, 32, out) == 1
    assert module.launch("k", 1, 1025, out) == 1
    assert module.launch("k", (1, 65536), 32, out) == 1
    assert module.launch("k", 1, 32, out, shared=48 * 1024 + 4 - 4) == 0


@case
def a_trap():
    fails(r'extern "C" __global__ void k(float*o){ if(threadIdx.x==3) __trap(); }', 715, ["trap"], [np.zeros(4, np.float32)])


@case(SOFTWARE_CUDA_POISON="1")
def uninitialised_is_no_number():
    import ctypes
    from card import driver
    module = card(r'extern "C" __global__ void k(float*o,const float*a){ __shared__ float s[32]; o[threadIdx.x]=a[threadIdx.x]; o[32+threadIdx.x]=s[threadIdx.x]; }')
    pointer = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)) == 0
    out = np.zeros(64, np.float32)
    assert module.launch("k", 1, 32, out, pointer) == 0
    assert np.isnan(out).all()


@case(SOFTWARE_CUDA_RACES="1")
def a_missing_barrier():
    fails(r"""extern "C" __global__ void k(float*o){ __shared__ float s[64]; int t=threadIdx.x; s[t]=t; o[t]=s[63-t]; }""", 0,
          ["race in kernel k", "shared memory"], [np.zeros(64, np.float32)], block=64)


@case(SOFTWARE_CUDA_RACES="1")
def no_race_with_barriers():
    module = card(r"""extern "C" __global__ void k(float*o){ __shared__ float s[64]; int t=threadIdx.x; for(int r=0;r<3;r++){ s[t]=t+r; __syncthreads(); float v=s[63-t]; __syncthreads(); o[t]=v; } }""")
    read, write = os.pipe()
    kept = os.dup(2)
    os.dup2(write, 2)
    out = np.zeros(64, np.float32)
    status = module.launch("k", 1, 64, out)
    os.dup2(kept, 2)
    os.close(write)
    assert status == 0 and os.read(read, 4096) == b""
    same(out, 65 - np.arange(64))


@case(SOFTWARE_CUDA_RACES="1")
def a_race_of_blocks():
    fails(r'extern "C" __global__ void k(float*o){ o[threadIdx.x]=blockIdx.x; }', 0, ["race in kernel k", "allocation"], [np.zeros(64, np.float32)], block=32, grid=2)


@case(SOFTWARE_CUDA_RACES="1")
def a_barrier_not_all_reach():
    fails(r'extern "C" __global__ void k(float*o){ if(threadIdx.x<40) __syncthreads(); o[threadIdx.x]=1; }', 719, ["barrier divergence"],
          [np.zeros(64, np.float32)], block=64)


@case
def a_barrier_in_a_divergent_branch():
    fails(r'extern "C" __global__ void k(float*o){ if(threadIdx.x<16){ o[0]=1; __syncthreads(); o[1]=2; } else { o[2]=3; __syncthreads(); o[3]=4; } }', 719,
          ["divergence"], [np.zeros(64, np.float32)])


@case
def an_unknown_instruction():
    from card import Card
    ptx = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r<3>;\n\tfrobnicate.b32 %r1, %r2;\n\tret;\n}\n\0"
    try:
        Card(ptx=ptx)
    except RuntimeError:
        return
    raise AssertionError("the module is loaded")


FILL = r'extern "C" __global__ void k(float*o,float value){ o[threadIdx.x]=value; }'


@case(SOFTWARE_CUDA_EXECUTES="1")
def launches_past_a_number_are_skipped():
    module = card(FILL)
    large = np.full(1 << 15, 7, np.float32)
    assert module.launch("k", 1, 32, large, 1.0) == 0
    same(large[:33], [1.0] * 32 + [7.0])
    assert module.launch("k", 1, 32, large, 2.0) == 0
    same(large[:33], [1.0] * 32 + [7.0], "a large reading is of memory")
    small = np.full(64, 7, np.float32)
    assert module.launch("k", 1, 32, small, 2.0) == 0
    same(small, [0.0] * 64, "a small reading is of zeros")
    assert module.launch("k", 0, 32, small, 2.0) == INVALID_VALUE, "a launch of no blocks"


@case(SOFTWARE_CUDA_FAILS_AFTER="1")
def launches_past_a_number_lose_the_context():
    from card import driver

    module, out = card(FILL), np.zeros(32, np.float32)
    assert module.launch("k", 1, 32, out, 1.0) == 0
    assert module.launch("k", 1, 32, out, 2.0) == LAUNCH_FAILED
    assert driver.cuCtxSynchronize() == LAUNCH_FAILED


@case(SOFTWARE_CUDA_FAULTS_AT="1")
def a_launch_that_faults_is_accepted_and_loses_the_context():
    from card import driver

    module, out = card(FILL), np.zeros(32, np.float32)
    assert module.launch("k", 1, 32, out, 1.0) == 0
    assert module.launch("k", 1, 32, out, 2.0) == ILLEGAL_ADDRESS
    assert driver.cuCtxSynchronize() == ILLEGAL_ADDRESS


@case(SOFTWARE_CUDA_ALLOCATIONS="2")
def allocations_past_a_number_find_no_memory():
    from card import driver

    pointers = [ctypes.c_uint64() for _ in range(3)]
    found = [driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64)) for pointer in pointers]
    assert found == [0, 0, OUT_OF_MEMORY], found


def run(name):
    command = [sys.executable, __file__, "--one", name]
    return subprocess.run(command, env={**os.environ, **CASES[name][1]}, capture_output=True, text=True)


def main():
    parts = sys.argv[1:]
    if parts and parts[0] == "--one":
        sys.path.insert(0, str(pathlib.Path(__file__).parent))
        CASES[parts[1]][0]()
        return
    names = [name for name in CASES if not parts or any(part in name for part in parts)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, outcome in zip(names, pool.map(run, names)):
            passed = outcome.returncode == 0
            failed += not passed
            print(f"{'ok    ' if passed else 'FAILED'} {name}")
            if not passed:
                print("    " + "\n    ".join((outcome.stdout + outcome.stderr).strip().splitlines()[-12:]))
    print(f"{failed} of {len(names)} failed")
    sys.exit(failed > 0 or not names)


if __name__ == "__main__":
    main()
