// Package textembed is the stage that encodes captions with FLUX.2's text tower
// (Mistral 3 for dev, Qwen3 for klein, told apart by the model's config). What is
// in the cache already costs a look-up; each different caption that is missing
// is encoded once. The sample goes on with cache.Refs of its caption and, where
// captions are dropped at times, of the dropped caption. internal/embedding has
// the stored form.
//
// Factory is the stage; Encode does the same without a pipeline.
//
// A run takes all samples first, then a lease for the tower if anything is
// missing, quantises the tower layer by layer, encodes, and gives all memory of
// the device and the host back before it sends a sample on.
package textembed
