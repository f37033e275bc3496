// A stand-in for the proxy mode of kubernetes-csi/csi-driver-host-path, which the specs start in a pod so that a driver outside of the node
// can serve a socket of the kubelet's: a connection to the socket is joined with one that somebody has opened to a port. It is no CSI driver.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"os"
	"strings"
)

func main() {
	endpoint := flag.String("endpoint", "", "path of the socket")
	other := flag.String("proxy-endpoint", "", "tcp://[HOST]:PORT")
	flag.Int("v", 0, "not heeded: what goes wrong is told, and nothing else")
	flag.Parse()

	if err := os.Remove(*endpoint); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	socket := listen("unix", *endpoint)
	port := listen("tcp", strings.TrimPrefix(*other, "tcp://"))
	for {
		// The socket first: connections to the port are made in advance, and the kernel keeps them for us.
		asking, answering := accept(socket), accept(port)
		go forward(asking, answering)
		go forward(answering, asking)
	}
}

func listen(network, address string) net.Listener {
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func accept(listener net.Listener) net.Conn {
	connection, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

// forward ends both directions when one ends.
func forward(from, to net.Conn) {
	defer to.Close()
	_, _ = io.Copy(to, from)
}
