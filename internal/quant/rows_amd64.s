#include "textflag.h"

// dwords of a register after two packs, back in order
DATA ·order<>+0(SB)/4, $0
DATA ·order<>+4(SB)/4, $4
DATA ·order<>+8(SB)/4, $1
DATA ·order<>+12(SB)/4, $5
DATA ·order<>+16(SB)/4, $2
DATA ·order<>+20(SB)/4, $6
DATA ·order<>+24(SB)/4, $3
DATA ·order<>+28(SB)/4, $7
GLOBL ·order<>(SB), RODATA|NOPTR, $32

// FLOAT8 encodes the eight bfloat16 at off(SI) into the dwords of V.
#define FLOAT8(off, V) \
	VPMOVZXWD off(SI), V \
	VPSLLD    $16, V, V   \ // W
	VPSRLD    $24, V, Y13 \
	VPAND     Y8, Y13, Y13 \ // its sign, as the code has it
	VANDPS    Y6, V, V    \
	VDIVPS    Y0, V, V    \ // |W|/scale
	VMINPS    Y1, V, V    \ // saturated
	VPAND     Y7, V, Y14  \ // 2^exponent
	VPMAXSD   Y2, Y14, Y14 \
	VPADDD    Y3, Y14, Y14 \
	VADDPS    Y14, V, V   \ // rounded at the code's last place,
	VSUBPS    Y14, V, V   \ // to nearest even
	VMULPS    Y4, V, V    \ // brought to the code's exponent
	VPSRLD    X5, V, V    \
	VPOR      Y13, V, V

// func float8AVX2(dst *byte, src *uint16, blocks int, f *float8, scale float32)
TEXT ·float8AVX2(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ f+24(FP), DX
	VBROADCASTSS scale+32(FP), Y0
	VBROADCASTSS 0(DX), Y1
	VBROADCASTSS 4(DX), Y2
	VBROADCASTSS 8(DX), Y3
	VBROADCASTSS 12(DX), Y4
	VMOVD 16(DX), X5
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $1, Y9, Y6  // 7fffffff
	VPSLLD $24, Y9, Y7
	VPSRLD $1, Y7, Y7  // 7f800000
	VPSLLD $31, Y9, Y8
	VPSRLD $24, Y8, Y8 // 80
	VMOVDQU ·order<>(SB), Y15
next:
	FLOAT8(0, Y9)
	FLOAT8(16, Y10)
	FLOAT8(32, Y11)
	FLOAT8(48, Y12)
	VPACKUSDW Y10, Y9, Y9
	VPACKUSDW Y12, Y11, Y11
	VPACKUSWB Y11, Y9, Y9
	VPERMD Y9, Y15, Y9
	VMOVDQU Y9, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	DECQ CX
	JNZ next
	VZEROUPPER
	RET

// INT8 encodes the eight bfloat16 at off(SI) into the dwords of V.
#define INT8(off, V) \
	VPMOVZXWD off(SI), V \
	VPSLLD    $16, V, V \
	VDIVPS    Y0, V, V  \
	VMINPS    Y1, V, V  \
	VMAXPS    Y2, V, V  \
	VCVTPS2DQ V, V

// func int8AVX2(dst *byte, src *uint16, blocks int, scale float32)
TEXT ·int8AVX2(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX
	VBROADCASTSS scale+24(FP), Y0
	MOVL $0x42fe0000, AX // 127
	VMOVD AX, X1
	VBROADCASTSS X1, Y1
	MOVL $0xc2fe0000, AX // -127
	VMOVD AX, X2
	VBROADCASTSS X2, Y2
	VMOVDQU ·order<>(SB), Y15
next:
	INT8(0, Y9)
	INT8(16, Y10)
	INT8(32, Y11)
	INT8(48, Y12)
	VPACKSSDW Y10, Y9, Y9
	VPACKSSDW Y12, Y11, Y11
	VPACKSSWB Y11, Y9, Y9
	VPERMD Y9, Y15, Y9
	VMOVDQU Y9, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	DECQ CX
	JNZ next
	VZEROUPPER
	RET

// func amaxAVX2(src *uint16, blocks int) uint16
TEXT ·amaxAVX2(SB), NOSPLIT, $0-18
	MOVQ src+0(FP), SI
	MOVQ blocks+8(FP), CX
	VPCMPEQD Y2, Y2, Y2
	VPSRLW $1, Y2, Y2 // 7fff
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
next:
	VPAND (SI), Y2, Y3
	VPAND 32(SI), Y2, Y4
	VPMAXUW Y3, Y0, Y0
	VPMAXUW Y4, Y1, Y1
	ADDQ $64, SI
	DECQ CX
	JNZ next
	VPMAXUW Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUW X1, X0, X0
	VPSRLDQ $8, X0, X1
	VPMAXUW X1, X0, X0
	VPSRLDQ $4, X0, X1
	VPMAXUW X1, X0, X0
	VPSRLDQ $2, X0, X1
	VPMAXUW X1, X0, X0
	VMOVD X0, AX
	MOVW AX, ret+16(FP)
	VZEROUPPER
	RET
