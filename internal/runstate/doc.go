// Package runstate keeps a run's checkpoints: numbered pairs of an adapter file
// and the state that a later run goes on from.
//
//	<output>/<name>/<name>_000000250.safetensors   the adapter, for use
//	<output>/<name>/<name>.safetensors             the adapter of the last step
//	<output>/<name>/state/<name>_000000250.state   adapter, EMA, optimiser, position, settings
//	<output>/<name>/state/lock, holder.json        who works on the run (Lock)
//
// A pair is committed by its state file, which is written last and holds the
// digest of the adapter file and a checksum of itself; each file is written by
// package atomicfile. So whatever a process was doing when it died, Latest finds
// the newest pair that is whole, and says what it passed over. Older checkpoints
// are removed only after that. A run may write several series of adapter files;
// those of one step are committed by one state.
//
// A Folder is used by one goroutine at a time.
package runstate
