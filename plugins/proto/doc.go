// Package proto is the protocol between longship and programs that bring stages
// of their own: plugins.proto and the Go code generated from it. Packages host
// and sdk are its two ends; a program in another language speaks it directly.
package proto

//go:generate python3 -m grpc_tools.protoc -I . --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative plugins.proto
