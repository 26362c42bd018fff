// Package bench measures training steps of a model's real shape on weights and
// samples made from a seed: nothing is downloaded, and what is measured is the
// stock prefetch and train stage in the pipeline engine. A stage of this package
// stands in the place of those that read photos and models.
//
// Run takes one case after the other in one process, so that the device is
// opened and page-locked memory is taken once. It is called from one goroutine.
package bench
