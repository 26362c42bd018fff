// Package latentcache shows one stage on its own: the latent cache as a
// pipeline of two stages (pipeline.yaml), and from Go, without a pipeline
// (Example).
package latentcache
