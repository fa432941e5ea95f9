//go:build tools

// Package tools pins the modules of the API server. It is never compiled.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver/app"
