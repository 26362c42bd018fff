// Package train is the stage that trains: a step of flow matching on the
// adapter of a FLUX.2 transformer, again and again, from where the run's folder
// says it stands to the last step. See README.md.
//
// The stage's goroutine queues all work: on a compute stream of its own, and on
// a stream for noise. What lies on the device belongs to the trainer, from Run to
// Close; batches and base weights belong to prefetch and are given back to it.
package train
