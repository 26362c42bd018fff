package ops

import "math"

// exp32 is e^x in float32, within 2 units in the last place: about four times as
// fast as math.Exp, which takes most of the time of a softmax or a SiLU.
//
// x = n·ln2 + r with |r| <= ln2/2, so e^x = 2^n·e^r, and e^r is its Taylor
// polynomial of degree 7. ln2 is subtracted in two parts, the first of which
// times n is exact.
func exp32(x float32) float32 {
	if !(x > -87 && x < 88) { // near the ends of the range, and NaN
		return float32(math.Exp(float64(x)))
	}
	const (
		log2e = 1 / math.Ln2
		ln2Hi = 0.693145751953125
		ln2Lo = math.Ln2 - ln2Hi
		round = 3 << 22 // adding and subtracting it rounds to a whole number
	)
	n := float32(x*log2e+round) - round
	r := x - n*ln2Hi - n*ln2Lo
	p := float32(1.0 / 5040)
	p = p*r + 1.0/720
	p = p*r + 1.0/120
	p = p*r + 1.0/24
	p = p*r + 1.0/6
	p = p*r + 0.5
	return math.Float32frombits(uint32(int32(n)+127)<<23) * (1 + (r + p*r*r))
}

func sigmoid(x float32) float32 { return 1 / (1 + exp32(-x)) }
