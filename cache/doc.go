// Package cache is a content-addressed store of tensors on Badger: one entry
// and one checksum a tensor, found by the hash of everything that decides its
// value. Beside the tensors it remembers what is dear to find out again: the
// content hash of a file by its path, size and times, small facts about a
// content, and the sample lists of datasets.
//
// A Store has its folder alone: a second process gets a BusyError that names the
// holder, or waits (Options.Wait); a second Open in one process is refused, and
// the stages of a run share one through Shared. All methods may be called from
// any goroutine. Open starts Badger's goroutines and Close ends them.
//
// What is lost costs time, never a result. Values are written to the operating
// system at once, so they outlive the process however it ends; Sync and Close
// bring them to the disk. A damaged tensor is found by its checksum, named, and
// dropped, so that it is made again; a folder that cannot be opened is set aside
// beside the new one. See README.md for the layout and the figures.
package cache
