// Package latents is the stage that encodes images with FLUX.2's VAE. What is
// in the cache already costs a look-up; on a miss the image is decoded, brought
// to its bucket's size and encoded, and its latent is put into the cache. The
// sample goes on with a cache.Ref.
//
// Factory is the stage; Encode and Folder do the same without a pipeline.
//
// A run takes all samples first, then a lease for the autoencoder if anything
// is missing, and gives it back after the last miss. Images are decoded on all
// cores ahead of the encoder; results keep the order of the samples. A broken
// image is set aside with its reason. All goroutines end with the run.
package latents
