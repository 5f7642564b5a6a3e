// Package config reads the configuration file: one struct, its defaults in one
// place ([Config.setDefaults]) and one [Config.Validate] that reports every
// fault at once, each with its key path.
//
// It starts no goroutine and imports no package of ours but table patterns: the
// program's main package turns its values into the options of the parts. It
// must never print a secret.
package config
