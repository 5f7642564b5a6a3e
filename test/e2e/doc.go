// Package e2e runs the built program between real servers and real brokers and
// holds what ordinary consumers receive against what the database holds.
//
// Its tests need the build tag integration.
package e2e
