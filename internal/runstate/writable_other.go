//go:build !unix

package runstate

// mayWrite leaves the question to the first write.
func mayWrite(string) error { return nil }
