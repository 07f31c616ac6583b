"""What work costs on a device: data sheets and the roofline model."""
