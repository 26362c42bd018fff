package texttower_test

import (
	"testing"

	"longship/internal/mistral"
	"longship/internal/texttower"
)

// BenchmarkEncode encodes one prompt of 512 tokens with the quickstart's model.
func BenchmarkEncode(b *testing.B) {
	const model, tokens = "../../examples/quickstart/model/", 512
	p, err := texttower.NewPrompter(model+"tokenizer", mistral.Family(), tokens)
	if err != nil {
		b.Fatal(err)
	}
	prompts := []texttower.Prompt{p.Prompt("a photo of a dog in a bucket, sunny day")}
	tower := load(b, open(b, model+"text_encoder"), texttower.Options{QType: "bf8", Tokens: tokens})
	b.ReportAllocs()
	for b.Loop() {
		if err := tower.Encode(b.Context(), prompts, func(int, []float32) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}
