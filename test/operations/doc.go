// Package operations holds the program against what goes wrong around it:
// databases, brokers, disks and configurations that are not as they should be. Each fault must show as one clear
// message with its remedy, a non-zero exit code or a red health, and must lose nothing.
//
// Its tests run the program as a child and need the build tag integration.
package operations
