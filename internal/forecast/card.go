package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Card is what a forecast takes of a card. Rates are per second.
type Card struct {
	Name   string  `json:"name"`
	Source string  `json:"source"` // where the rates are from
	Bytes  int64   `json:"bytes"`  // of its memory, as its driver shows it
	Own    int64   `json:"own_bytes"`
	Copy   float64 `json:"copy_bytes_per_second"` // from page-locked host memory
	Memory float64 `json:"memory_bytes_per_second"`
	Gemm   float64 `json:"gemm_flops"` // products of bfloat16, float32 sums

	Attention         float64 `json:"attention_flops"`
	AttentionBackward float64 `json:"attention_backward_flops"`
}

// own is what a context, cublasLt and its workspaces are taken to have of a
// card. It is assumed: the driver tells where there is a card.
const own = 512 << 20

// cards are the known cards, by name.
var cards = map[string]Card{
	// Copies, products (630 to 810 TFLOP/s at FLUX.2's shapes) and attention
	// (FlashAttention-2, 1,536 tokens: 0.25 ms, 0.62 ms backward) are measured;
	// the memory is its data sheet's.
	"h200": {
		Name: "NVIDIA H200", Source: "measured; memory rate from the data sheet",
		Bytes: 141e9, Own: own, Copy: 55.4e9, Memory: 4.8e12, Gemm: 720e12, Attention: 232e12, AttentionBackward: 234e12,
	},
	// Dense bfloat16 with float32 sums, GDDR6X, PCIe 4.0 x16: limits, which a run
	// comes near and does not reach. Attention is taken to run at the rate of
	// products.
	"rtx4090": {
		Name: "NVIDIA GeForce RTX 4090", Source: "data sheet: limits, a run is slower",
		Bytes: 25_393_692_672, Own: own, Copy: 31.5e9, Memory: 1008e9, Gemm: 165.2e12, Attention: 165.2e12, AttentionBackward: 165.2e12,
	},
}

// Cards lists the names of the known cards.
func Cards() []string { return slices.Sorted(maps.Keys(cards)) }

// CardOf returns a known card by its name.
func CardOf(name string) (Card, error) {
	c, ok := cards[name]
	if !ok {
		return Card{}, fmt.Errorf("%q is no card whose rates are known; there are %s", name, strings.Join(Cards(), ", "))
	}
	return c, nil
}

// CardCalled returns the known card that a driver calls so, false where there
// is none: cards of similar names (a laptop's) have other rates.
func CardCalled(driver string) (Card, bool) {
	for _, c := range cards {
		if c.Name == driver {
			return c, true
		}
	}
	return Card{}, false
}
