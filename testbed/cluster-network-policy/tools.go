//go:build tools

// Package tools pins the definition of ClusterNetworkPolicy.
package tools

import (
	_ "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)
