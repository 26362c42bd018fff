package safetensors

import "slices"

// DType is an element type as it is written in a header.
type DType string

// The element types of the format, in the order that writers sort by.
const (
	Bool    DType = "BOOL"
	F4      DType = "F4"
	F6E2M3  DType = "F6_E2M3"
	F6E3M2  DType = "F6_E3M2"
	U8      DType = "U8"
	I8      DType = "I8"
	E5M2    DType = "F8_E5M2"
	E4M3    DType = "F8_E4M3"
	E8M0    DType = "F8_E8M0"
	E4M3UZ  DType = "F8_E4M3FNUZ"
	E5M2UZ  DType = "F8_E5M2FNUZ"
	I16     DType = "I16"
	U16     DType = "U16"
	F16     DType = "F16"
	BF16    DType = "BF16"
	I32     DType = "I32"
	U32     DType = "U32"
	F32     DType = "F32"
	Complex DType = "C64"
	F64     DType = "F64"
	I64     DType = "I64"
	U64     DType = "U64"
)

var dtypeOrder = []DType{Bool, F4, F6E2M3, F6E3M2, U8, I8, E5M2, E4M3, E8M0, E4M3UZ, E5M2UZ,
	I16, U16, F16, BF16, I32, U32, F32, Complex, F64, I64, U64}

// Bits returns the bits of one element, 0 for an unknown type.
func (d DType) Bits() int {
	switch d {
	case F4:
		return 4
	case F6E2M3, F6E3M2:
		return 6
	case Bool, U8, I8, E5M2, E4M3, E8M0, E4M3UZ, E5M2UZ:
		return 8
	case I16, U16, F16, BF16:
		return 16
	case I32, U32, F32:
		return 32
	case Complex, F64, I64, U64:
		return 64
	}
	return 0
}

// rank is d's place in the format's order.
func (d DType) rank() int { return slices.Index(dtypeOrder, d) }
