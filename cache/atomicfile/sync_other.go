//go:build !unix

package atomicfile

// SyncDir does nothing here: folders cannot be synced, and the file system
// keeps a journal of renames.
func SyncDir(string) error { return nil }
