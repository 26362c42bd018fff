//go:build !unix

package runstate

// syncDir does nothing here: folders cannot be synced, and a rename is
// journalled by the file system.
func syncDir(string) error { return nil }
